"""Formats of archives, as an import reads and an export writes them.

Adapters are pure but for the stream that they read, and run on any thread.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from turnwire.domain.archive.records import ImportProblem, Record


class ArchiveReader(Protocol):
    """Reads one format."""

    @property
    def keeps_ids(self) -> bool:
        """True for the format of Turnwire itself, whose ids are kept where they are free. All others get new ones."""
        ...

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records of an archive, and what could not be carried, where it was found.

        Uses memory for one record, or for one conversation where the format needs it, and never for the archive. It has
        a bound for everything that the archive could make large: lines, depth, count and size of what is unpacked.

        Args:
            source: The archive, from its beginning; can seek. How far it was read shows the progress.
            options: The caller's options, by name.

        Raises:
            ArchiveInvalid: the archive is not of this format, of a newer version, cut, damaged or over a bound. Where
                and why is in the error. What was yielded before must not be kept.
            InvalidRequest: an option is unknown or wrong.
        """
        ...


class ArchiveWriter(Protocol):
    """Writes one archive of one format. Calls come in the order of the records."""

    @property
    def mime(self) -> str:
        """The media type of the written file, such as "application/json"."""
        ...

    def write(self, record: Record) -> bytes:
        """Returns what the record adds to the archive; b"" where that comes later or the format has no place for it."""
        ...

    def end(self) -> bytes:
        """Returns the end of the archive."""
        ...


@dataclass(frozen=True)
class ArchiveFormat:
    """The operations of a server on one format: reading, writing, or both."""

    reader: ArchiveReader | None = None
    make_writer: Callable[[bool], ArchiveWriter] | None = None
    """Makes the writer of one archive. Takes whether its records have the bytes of files."""
