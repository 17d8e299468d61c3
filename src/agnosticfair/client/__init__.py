"""The client's side: answers to the server's questions, all of them sums over rows."""
