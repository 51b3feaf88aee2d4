"""A command for the tests of the registry."""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Adds its option."""
    parser.add_argument("--from", dest="number", type=int, required=True)


def run(arguments: Namespace) -> int:
    """Returns the number as the exit code."""
    return int(arguments.number)
