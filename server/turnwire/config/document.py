"""The document of a configuration: the tables of the file under the overrides, and where each value stands.

docs/configuration.md says what the tables hold.
"""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from turnwire.config.sections import SECTIONS, TABLES, custom_value, explained

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
"""What the name of an environment variable looks like."""

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
"""Later ones win. Other TURNWIRE_ variables are left alone: Kubernetes sets TURNWIRE_PORT and the like by itself for a
service of that name."""

Section = TypeVar("Section")


class ConfigError(Exception):
    """The configuration is wrong. The message names the file or variable and the key."""


class Document:
    """Hands out the tables as checked values, and makes the errors that name where a wrong one stands."""

    def __init__(self, file: Path | None, overrides: Mapping[str, str]) -> None:
        """Reads the file.

        Args:
            file: None for an empty document.
            overrides: The environment and the options of the command line.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or has an unknown section.
        """
        self._file = file
        self._tables = _tables(file)
        self._overridden_by: dict[str, str] = {}
        """Key path -> variable or option."""
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
        """Returns a section as it was written, its keys in the file's order; empty when it is left out."""
        table: dict[str, Any] = self._tables.get(name, {})
        return table

    def section(self, name: str, kind: type[Section]) -> Section:
        """Returns a section as a value of a type. Raises ConfigError."""
        return self.converted(name, self.table(name), kind)

    def converted(self, key: str, table: object, kind: type[Section]) -> Section:
        """Returns a table as a value of a type. Raises ConfigError with the path of the wrong key below `key`."""
        try:
            return msgspec.convert(table, kind, dec_hook=custom_value)
        except msgspec.ValidationError as error:
            raise self.error(*explained(key, error, kind)) from None

    def path(self, key: str, path: Path) -> Path:
        """Returns the path seen from the working directory; a relative one of the file starts at the file's folder."""
        path = path.expanduser()
        from_file = self._file is not None and key not in self._overridden_by
        return (self._file.parent / path if from_file and self._file else path).absolute()

    def error(self, key: str, problem: str) -> ConfigError:
        """Returns the error with the place that the value of the key came from."""
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
