"""Formats of archives, as an import reads and an export writes them.

Adapters are pure but for the stream that they read, and run on any thread.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
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
            options: What the caller says about it, by name.

        Raises:
            ArchiveInvalid: the archive is not of this format, of a newer version, cut, damaged or over a bound. Where
                and why is in the error. What was yielded before must not be kept.
            InvalidRequest: an option is unknown or wrong.
        """
        ...


class ArchiveWriter(Protocol):
    """Writes one archive of one format. Calls come in the order of the records."""

    @property
    def media_type(self) -> str:
        """Of what is written, such as "application/json"."""
        ...

    def write(self, record: Record) -> bytes:
        """Returns what the record adds to the archive; b"" where that comes later or the format has no place for it."""
        ...

    def end(self) -> bytes:
        """Returns the end of the archive."""
        ...


@dataclass(frozen=True)
class ArchiveFormat:
    """What a server can do with one format; at least one of both."""

    reader: ArchiveReader | None = None
    make_writer: Callable[[bool], ArchiveWriter] | None = None
    """Makes the writer of one archive. Takes whether its records have the bytes of files."""


class SessionArchive(Protocol):
    """Reads whole sessions of a tenant, each as of one moment."""

    async def records(self, session_id: str, *, include_files: bool) -> AsyncGenerator[tuple[Record, ...]]:
        """Yields the records of a session in small batches; their memory does not grow with the session.

        Without waiting messages. While a turn runs, the session ends before the first message that is not complete, and
        the turn counts as interrupted. Turns come before messages, a file before the first message that names it.
        The store keeps the moment until the generator is closed, so nothing slow may wait between two batches.

        Args:
            session_id: The session.
            include_files: Whether there are records of files.

        Raises:
            SessionNotFound: there is no such session any more.
            StorageError: it could not be read.
        """
        yield ()
