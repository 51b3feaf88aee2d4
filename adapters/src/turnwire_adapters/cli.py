"""The command `turnwire-adapters`: `serve`, `import` and `migrate`."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from turnwire_adapters import __version__, settings
from turnwire_adapters.registry import IMPORTERS, MIGRATIONS, Command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 2 when it was called wrongly."""
    parser = argparse.ArgumentParser(
        prog="turnwire-adapters", description="Other systems' clients and data in front of Turnwire."
    )
    parser.add_argument("--version", action="version", version=f"turnwire-adapters {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve HTTP applications for other systems' clients")
    settings.add_arguments(serve)
    _add_registered(commands, "import", "bring other systems' files into a server", IMPORTERS)
    _add_registered(commands, "migrate", "change other systems' files in place", MIGRATIONS)
    given = parser.parse_args(arguments)
    if given.command == "serve":
        return _serve(given)
    registered: Mapping[str, Command] = IMPORTERS if given.command == "import" else MIGRATIONS
    return int(importlib.import_module(registered[given.name].module).run(given))


def _add_registered(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    registered: Mapping[str, Command],
) -> None:
    """Adds a command with one subcommand for each entry of a registry."""
    if not registered:
        return
    names = commands.add_parser(name, help=text).add_subparsers(dest="name", required=True)
    for key, command in registered.items():
        module = importlib.import_module(command.module)
        module.add_arguments(names.add_parser(key, help=command.summary))


def _serve(given: argparse.Namespace) -> int:
    try:
        read = settings.read(given, os.environ)
    except settings.SettingsError as error:
        print(f"turnwire-adapters: {error}", file=sys.stderr)
        return 2
    from turnwire_adapters import serve  # noqa: PLC0415 - `--help` and importers need no web server

    return serve.run(read)


if __name__ == "__main__":
    sys.exit(main())
