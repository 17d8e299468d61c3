"""The server's solvers: ``exact`` over sums, and ``printed`` with local steps and an average."""
