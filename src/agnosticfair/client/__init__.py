"""The client's side: answers to the server's requests, all of them sums over rows."""
