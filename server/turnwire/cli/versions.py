"""`turnwire version`: what this installation is made of."""

import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version

from turnwire import __version__
from turnwire.cli.output import print_json, print_line
from turnwire.storage.sqlite.schema import MIGRATIONS

PACKAGES = (
    "grpcio",
    "protobuf",
    "aiosqlite",
    "openai",
    "anthropic",
    "prometheus-client",
    "uvloop",
    "mcp",
    "pyjwt",
    "cryptography",
    "opentelemetry-sdk",
)
"""Packages whose version matters in a report of a problem."""


def run_version(*, as_json: bool) -> int:
    """Prints the versions. Returns the exit code, 0."""
    found: dict[str, str | int | None] = {
        "turnwire": __version__,
        "schema": len(MIGRATIONS),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        **{name: _installed(name) for name in PACKAGES},
    }
    if as_json:
        print_json(found)
        return 0
    for name, value in found.items():
        print_line(f"{name:<{max(map(len, found))}} {'not installed' if value is None else value}")
    return 0


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
