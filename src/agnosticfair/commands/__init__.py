"""The command line, a module for each command, which ``agnosticfair.cli`` registers, and what they share."""
