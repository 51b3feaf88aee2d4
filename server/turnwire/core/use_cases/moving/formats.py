"""The formats of archives by their names."""

from collections.abc import Callable, Mapping

from turnwire.domain.errors import InvalidRequest
from turnwire.ports.moving.archives import ArchiveFormat, ArchiveReader, ArchiveWriter

OWN = "turnwire"
"""The format that loses nothing; what "" names."""


class Formats:
    """The archive formats that the server reads and writes."""

    def __init__(self, formats: Mapping[str, ArchiveFormat]) -> None:
        """Takes the formats by name; `OWN` is among them."""
        self._formats = formats

    def writer(self, name: str) -> Callable[[bool], ArchiveWriter]:
        """Returns what makes writers of a format. Raises InvalidRequest on `format`: it is not written."""
        found = self._formats.get(name or OWN, ArchiveFormat()).make_writer
        if found is None:
            names = sorted(known for known, one in self._formats.items() if one.make_writer is not None)
            raise InvalidRequest.of("format", f"is not one of {', '.join(names)}", format=name)
        return found

    def reader(self, name: str) -> ArchiveReader:
        """Returns the reader of a format. Raises InvalidRequest on `format`: it is not read."""
        found = self._formats.get(name or OWN, ArchiveFormat()).reader
        if found is None:
            names = sorted(known for known, one in self._formats.items() if one.reader is not None)
            raise InvalidRequest.of("format", f"is not one of {', '.join(names)}", format=name)
        return found
