"""The research behind agnosticfair: the paper's experiments, the shift suite and the benchmark."""
