"""The adapters by name. An application is imported when it is switched on: no adapter costs those who use another.

An HTTP application is a package with `app(upstream) -> Starlette`. An importer or a migration is a module with
`add_arguments(parser)` and `run(arguments) -> int`, which returns the exit code of the command. The module of each
command is imported for `--help`: what is large or an extra it imports in `run`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpAdapter:
    """One HTTP application."""

    package: str
    """Has `app(upstream: Upstream) -> Starlette`."""
    prefix: str
    """Where it is mounted unless `--mount` says otherwise: a path without a slash at its end; "" is the root."""
    summary: str
    """Description of the adapter for `--help`."""


@dataclass(frozen=True, slots=True)
class Command:
    """One importer or migration."""

    module: str
    """Has `add_arguments(parser: ArgumentParser) -> None` and `run(arguments: Namespace) -> int`."""
    summary: str
    """Description of the command for `--help`."""


HTTP_ADAPTERS: dict[str, HttpAdapter] = {
    "responses": HttpAdapter("turnwire_adapters.responses", "/v1", "the OpenAI Responses and Conversations API"),
    "opencode": HttpAdapter("turnwire_adapters.opencode", "/opencode", "OpenCode's HTTP API, for its own clients"),
    "maria": HttpAdapter("turnwire_adapters.maria", "/maria", "tasks and event envelopes of Maria"),
    "plue": HttpAdapter("turnwire_adapters.plue", "/plue", "the four functions of Plue's message API"),
}
"""Adapters of `turnwire-adapters serve`, by name."""

_IMPORTERS = "turnwire_adapters.importers"

IMPORTERS: dict[str, Command] = {
    "pynchy": Command(f"{_IMPORTERS}.pynchy.importing", "chats of a pynchy file"),
    "ikigai": Command(f"{_IMPORTERS}.ikigai", "rows of ikigai, as JSON Lines"),
    "opencode": Command(f"{_IMPORTERS}.opencode_database", "sessions of OpenCode's database"),
}
"""Importers of `turnwire-adapters import`, by name: foreign files become sessions of a server."""

MIGRATIONS: dict[str, Command] = {
    "pynchy": Command(f"{_IMPORTERS}.pynchy.migrating", "types the messages of a pynchy file"),
}
"""Migrations of `turnwire-adapters migrate`, by name: foreign files are changed in place."""
