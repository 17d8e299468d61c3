"""The server's side: a plan from the census, then a solver from state to state. It sees sums only."""
