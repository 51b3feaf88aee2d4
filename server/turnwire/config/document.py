"""The document of a configuration: the tables of the file with overrides applied, and the source of each value.

docs/reference/configuration.md describes the tables.
"""

import errno
import importlib.util
import stat
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from turnwire.config.sections import SECTIONS, TABLES, custom_value, describe_error

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
"""Pattern for the name of an environment variable."""

INSTALL_EXTRAS = "pip install -r requirements-extras.txt --require-hashes --no-deps"

_NAMES = frozenset({*SECTIONS, *TABLES, "permissions"})

KEY_OF_OVERRIDE = {
    "TURNWIRE_LISTEN": ("server", "listen"),
    "TURNWIRE_STORAGE_PATH": ("storage", "path"),
    "TURNWIRE_STORAGE_URL": ("storage", "url"),
    "TURNWIRE_CLUSTER_ADVERTISE": ("cluster", "advertise"),
    "TURNWIRE_DEFAULT_MODEL": ("defaults", "model"),
    "TURNWIRE_LOG_LEVEL": ("log", "level"),
    "TURNWIRE_LOG_FORMAT": ("log", "format"),
    "--listen": ("server", "listen"),
    "--db": ("storage", "path"),
    "--web": ("web", "listen"),
}
"""Later entries take precedence. Other TURNWIRE_ variables are ignored, because Kubernetes sets some, such as
TURNWIRE_PORT, for a service named turnwire."""

Section = TypeVar("Section")


class ConfigError(Exception):
    """The configuration is invalid. The message names the file or variable, and the key."""

    def __init__(self, message: str, *, key: str = "", source: str = "", problem: str = "") -> None:
        """Takes the message, and its parts where it concerns a single key."""
        super().__init__(message)
        self.key = key
        self.source = source
        """The file, variable or option that sets the key."""
        self.problem = problem or message


class Document:
    """Returns tables as checked values, and creates the errors that name the source of an invalid value."""

    def __init__(self, file: Path | None, overrides: Mapping[str, str]) -> None:
        """Reads the file.

        Args:
            file: None for an empty document.
            overrides: The environment and the command line options.

        Raises:
            ConfigError: the file cannot be read, or is not TOML.
        """
        self._file = file
        self._tables = _tables(file)
        self._overridden_by: dict[str, str] = {}
        """Maps a key path to the variable or option that set it."""
        self.environ = overrides
        for override, (section, key) in KEY_OF_OVERRIDE.items():
            table = self._tables.setdefault(section, {}) if overrides.get(override) else None
            if isinstance(table, dict):
                table[key] = overrides[override]
                self._overridden_by[f"{section}.{key}"] = override

    def check_sections(self) -> None:
        """Raises ConfigError for a section that is unknown or not a table."""
        for name, table in self._tables.items():
            if name not in _NAMES:
                raise self.error(name, "is not a known section")
            if not isinstance(table, dict):
                raise self.error(name, "must be a table")

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
        """Returns the absolute path. A path in the file is relative to its folder, others to the working directory.

        Raises:
            ConfigError: no file can have this path: the user of its `~` does not exist, a name is too long, or it has a
                zero byte.
        """
        try:
            path = path.expanduser()
        except RuntimeError:
            raise self.error(key, f"{path.parts[0]} names a user who does not exist on this machine") from None
        from_file = self._file is not None and key not in self._overridden_by
        path = (self._file.parent / path if from_file and self._file else path).absolute()
        try:
            path.stat()
        except ValueError:
            raise self.error(key, "has a zero byte, which no path may have") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise self.error(key, "is longer than a path, or a name in it, may be") from None
        return path

    def folder(self, key: str, path: Path) -> Path:
        """Returns the absolute path of a folder as `path` does. Raises ConfigError also when it is not a folder or
        cannot be read.
        """
        path = self.path(key, path)
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                raise self.error(key, f"{path} cannot be read: {error.strerror}") from None
            is_folder = False
        if not is_folder:
            raise self.error(key, f"{path} is not a folder")
        return path

    @property
    def file(self) -> Path | None:
        """The file; None when there is none."""
        return self._file

    def source(self, key: str) -> str:
        """Returns the source of the value of a key in a section: a variable or option, "file" or "default"."""
        section, _, name = key.partition(".")
        return self._overridden_by.get(key) or ("file" if name in self.table(section) else "default")

    def remove(self, key: str) -> tuple[str, ...]:
        """Removes the value of a key, or the table that should have it, so that the rest can be read.

        Returns:
            The path of keys to the removed value; empty when no part of it exists.
        """
        holder: dict[str, Any] | None = None
        table: object = self._tables
        path: tuple[str, ...] = ()
        rest = key
        while isinstance(table, dict) and rest and (found := _first_name(table, rest)):
            name, rest = found
            holder, path, table = table, (*path, name), table[name]
        if holder is not None:
            del holder[path[-1]]
            self._overridden_by.pop(".".join(path), None)
        return path

    def require_extra(self, key: str, extra: str, *modules: str) -> None:
        """Checks that the packages of an extra are installed, without importing them.

        Args:
            key: The key that needs them.
            extra: Its name.
            modules: One module of each package.

        Raises:
            ConfigError: one is missing.
        """
        if not all(map(_is_installed, modules)):
            problem = f"needs the extra {extra!r}, whose packages are not installed: {INSTALL_EXTRAS}"
            raise self.error(key, f"{problem} (a file of the release and of a checkout)")

    def error(self, key: str, problem: str) -> ConfigError:
        """Returns the error about a key, with the source of its value."""
        override = self._overridden_by.get(key)
        source = override or str(self._file or "default configuration")
        place = override or f"{source}: {key}"
        return ConfigError(f"{place}: {problem}", key=key, source=source, problem=problem)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above the module is missing
        return False


def _first_name(table: dict[str, Any], path: str) -> tuple[str, str] | None:
    """Returns the name in a table with which a path begins, and the rest of the path."""
    for name in sorted(table, key=len, reverse=True):
        for written in (f'"{name}"', name):
            if path == written or path.startswith((f"{written}.", f"{written}[")):
                return name, path[len(written) :].removeprefix(".")
    return None


def _tables(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"), parse_float=Decimal)  # money must not lose digits
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{file}: cannot be read: lists or tables are nested too deeply") from None
