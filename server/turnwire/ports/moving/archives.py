"""Formats of archives, as an import reads and an export writes them.

Adapters are pure except for the stream that they read, and run on any thread.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from turnwire.domain.archive.records import ImportProblem, Record


class ArchiveReader(Protocol):
    """Reads one format."""

    @property
    def keeps_ids(self) -> bool:
        """True for Turnwire's own format, whose ids are kept where they are free; others are replaced."""
        ...

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records of an archive, and a problem wherever something could not be imported.

        Uses memory for one record, or for one conversation where the format requires it, and never for the whole
        archive. Everything that an archive could make large has a limit: lines, depth, and count and size of unpacked
        files.

        Args:
            source: The archive, at its beginning; seekable. Its position shows the progress.
            options: The caller's options, by name.

        Raises:
            ArchiveInvalid: the archive is not of this format, of a newer version, cut off, damaged or over a limit. The
                error says where and why. Records that were yielded before must not be kept.
            InvalidRequest: an option is unknown or wrong.
        """
        ...


@runtime_checkable
class SeekingReader(ArchiveReader, Protocol):
    """Reads a format whose sessions can be read from where they begin."""

    def read_from(self, source: BinaryIO, position: int, sessions: int) -> Iterator[Record | ImportProblem]:
        """Yields the records from the session on that begins at a position, after a number of others.

        The position is where `read` had come to when it yielded the end of the session before. Raises as `read`.
        """
        ...


class ArchiveWriter(Protocol):
    """Writes one archive of one format. The records are passed in their order."""

    @property
    def mime(self) -> str:
        """The media type of the written file, such as "application/json"."""
        ...

    def write(self, record: Record) -> bytes:
        """Returns the bytes that the record adds; b"" if they come later or the format cannot hold the record."""
        ...

    def end(self) -> bytes:
        """Returns the end of the archive."""
        ...


@dataclass(frozen=True)
class ArchiveFormat:
    """The operations of a server on one format: reading, writing, or both."""

    reader: ArchiveReader | None = None
    make_writer: Callable[[bool], ArchiveWriter] | None = None
    """Makes the writer of one archive. The argument says whether its records include the bytes of files."""
