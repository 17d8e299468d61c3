"""The command line, one module per command; each is a function that ``agnosticfair.cli`` registers."""
