"""The formats of archives by their names."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from turnwire.domain.errors import InvalidRequest
from turnwire.ports.moving.archives import ArchiveFormat, ArchiveReader, ArchiveWriter

T = TypeVar("T")

OWN = "turnwire"
"""The format that loses nothing; what "" names."""


class Formats:
    """The archive formats that the server reads and writes."""

    def __init__(self, formats: Mapping[str, ArchiveFormat]) -> None:
        """Takes the formats by name; `OWN` is among them."""
        self._formats = formats

    def writer(self, name: str) -> Callable[[bool], ArchiveWriter]:
        """Returns what makes writers of a format. Raises InvalidRequest on `format`: it is not written."""
        return self._found(name, {known: one.make_writer for known, one in self._formats.items()})

    def reader(self, name: str) -> ArchiveReader:
        """Returns the reader of a format. Raises InvalidRequest on `format`: it is not read."""
        return self._found(name, {known: one.reader for known, one in self._formats.items()})

    @staticmethod
    def _found(name: str, parts: Mapping[str, T | None]) -> T:
        found = parts.get(name or OWN)
        if found is None:
            names = sorted(known for known, one in parts.items() if one is not None)
            raise InvalidRequest.of("format", f"is not one of {', '.join(names)}", format=name)
        return found
