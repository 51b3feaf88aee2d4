"""The document of a configuration: the tables of the file with overrides applied, and the source of each value.

docs/configuration.md describes the tables.
"""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from turnwire.config.sections import SECTIONS, TABLES, custom_value, describe_error

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
"""Pattern for the name of an environment variable."""

_NAMES = frozenset({*SECTIONS, *TABLES, "permissions"})

KEY_OF_OVERRIDE = {
    "TURNWIRE_LISTEN": ("server", "listen"),
    "TURNWIRE_STORAGE_PATH": ("storage", "path"),
    "TURNWIRE_DEFAULT_MODEL": ("defaults", "model"),
    "TURNWIRE_LOG_LEVEL": ("log", "level"),
    "TURNWIRE_LOG_FORMAT": ("log", "format"),
    "--listen": ("server", "listen"),
    "--db": ("storage", "path"),
}
"""Later entries win. Other TURNWIRE_ variables are ignored, because Kubernetes sets some, such as TURNWIRE_PORT, for a
service named turnwire."""

Section = TypeVar("Section")


class ConfigError(Exception):
    """The configuration is invalid. The message names the file or variable, and the key."""


class Document:
    """Returns tables as checked values, and creates the errors that name the source of an invalid value."""

    def __init__(self, file: Path | None, overrides: Mapping[str, str]) -> None:
        """Reads the file.

        Args:
            file: None for an empty document.
            overrides: The environment and the command line options.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or has an unknown section.
        """
        self._file = file
        self._tables = _tables(file)
        self._overridden_by: dict[str, str] = {}
        """Maps a key path to the variable or option that set it."""
        self.environ = overrides
        for name, table in self._tables.items():
            if name not in _NAMES:
                raise self.error(name, "is not a known section")
            if not isinstance(table, dict):
                raise self.error(name, "must be a table")
        for override, (section, key) in KEY_OF_OVERRIDE.items():
            if value := overrides.get(override):
                self._tables.setdefault(section, {})[key] = value
                self._overridden_by[f"{section}.{key}"] = override

    def table(self, name: str) -> dict[str, Any]:
        """Returns a section as written, its keys in file order; empty if the section is absent."""
        table: dict[str, Any] = self._tables.get(name, {})
        return table

    def section(self, name: str, kind: type[Section]) -> Section:
        """Returns a section as a value of a type. Raises ConfigError."""
        return self.convert(name, self.table(name), kind)

    def convert(self, key: str, table: object, kind: type[Section]) -> Section:
        """Returns a table as a value of a type. Raises ConfigError with the path of the invalid key below `key`."""
        try:
            return msgspec.convert(table, kind, dec_hook=custom_value)
        except msgspec.ValidationError as error:
            raise self.error(*describe_error(key, error, kind)) from None

    def path(self, key: str, path: Path) -> Path:
        """Returns the absolute path. A path in the file is relative to its folder, others to the working directory."""
        path = path.expanduser()
        from_file = self._file is not None and key not in self._overridden_by
        return (self._file.parent / path if from_file and self._file else path).absolute()

    def error(self, key: str, problem: str) -> ConfigError:
        """Returns the error about a key, with the source of its value."""
        place = self._overridden_by.get(key) or f"{self._file or 'default configuration'}: {key}"
        return ConfigError(f"{place}: {problem}")


def _tables(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"), parse_float=Decimal)  # money must not lose digits
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from error
