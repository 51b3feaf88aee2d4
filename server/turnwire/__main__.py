"""Runs the command line: `python -m turnwire`."""

from turnwire.cli import main

if __name__ == "__main__":
    main()
