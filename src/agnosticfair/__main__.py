"""``python -m agnosticfair``."""

from agnosticfair.cli import main

if __name__ == "__main__":
    main()
