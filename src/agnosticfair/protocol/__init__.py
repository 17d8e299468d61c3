"""What travels between clients and server, and how: messages, faults, engines, what a message reveals."""
