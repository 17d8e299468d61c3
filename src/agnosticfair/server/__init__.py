"""The server's side: a plan from the summary statistics, then a solver from state to state. It sees sums only."""
