"""Reads an export as it is downloaded: only JSON, or a ZIP with JSON and files in it."""

import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from turnwire.domain.errors import ArchiveInvalid
from turnwire.domain.text import one_line
from turnwire.interop.archive.attachments import Attachment, NotCarried, too_large
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.documents import documents

_CONVERSATIONS = re.compile(r"conversations(?:-\d{1,9})?\.json")
"""Newer exports divide the file into `conversations-000.json` and so on."""
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
_DIRECTORY_BYTES = 8 * 2**20
"""Largest directory of a ZIP, which is read at once; an entry usually takes 100 bytes."""
_NAMES = 4
"""Number of last names of a path among which the id of a file is searched."""
_RATIO_FROM_BYTES = 2**20
"""Entries below this size may have any ratio."""
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OSError,
)
"""The errors of zipfile for an archive that it cannot read."""


class Export:
    """The conversations and files of an export. Names of entries are compared, never used as paths."""

    def __init__(self, source: BinaryIO, bounds: ArchiveLimits) -> None:
        """Reads the beginning of the source, and the directory of a ZIP.

        Raises:
            ArchiveInvalid: the ZIP is damaged, encrypted, packed in an unknown way, over a limit, or empty.
        """
        self._source = source
        self._bounds = bounds
        self._zip: zipfile.ZipFile | None = None
        self._conversations: list[zipfile.ZipInfo] = []
        self._files: dict[str, zipfile.ZipInfo] = {}
        beginning = source.read(4)
        source.seek(0)
        if beginning in _SIGNATURES:
            with _readable(""):
                self._zip = zipfile.ZipFile(cast(BinaryIO, _Guarded(source)))
                self._take(self._zip.infolist())

    def documents(self) -> Iterator[tuple[str, Any]]:
        """Yields each conversation with its position, such as "conversations.json[3]"."""
        if self._zip is None:
            yield from documents(self._source, self._bounds)
            return
        for entry in self._conversations:
            name = _name(entry)
            with _readable(name):
                stream = self._zip.open(entry)
            yield from documents(cast(BinaryIO, _Stream(stream, name)), self._bounds, name)

    def attachment(self, file_id: str, *, mime: str = "", filename: str = "", place: str = "") -> Attachment:
        """Returns the file with that id. Loading one that does not exist raises NotCarried."""
        return Attachment(
            load=lambda: self._load(file_id, filename),
            mime=mime,
            filename=filename or self._name_of(file_id),
            place=place,
        )

    def _load(self, file_id: str, filename: str) -> bytes:
        entry = self._files.get(file_id)
        if self._zip is None or entry is None:
            shown = one_line(filename or file_id, 100)
            raise NotCarried("FILE_NOT_IN_ARCHIVE", f'The file "{shown}" is not in the archive.')
        if entry.file_size > self._bounds.file_bytes:
            raise too_large(entry.file_size, self._bounds.file_bytes)
        with _readable(_name(entry)):
            return self._zip.read(entry)

    def _name_of(self, file_id: str) -> str:
        return _name(self._files[file_id]) if file_id in self._files else ""

    def _take(self, entries: list[zipfile.ZipInfo]) -> None:
        if len(entries) > self._bounds.entries:
            raise ArchiveInvalid.at(f"the ZIP has more than {self._bounds.entries} entries")
        if sum(entry.file_size for entry in entries) > self._bounds.unpacked_bytes:
            raise ArchiveInvalid.at(f"the ZIP unpacks to more than {self._bounds.unpacked_bytes} bytes")
        for entry in entries:
            self._check(entry)
            name = _name(entry)
            if _CONVERSATIONS.fullmatch(name):
                self._conversations.append(entry)
                continue
            for part in PurePosixPath(entry.filename.replace("\\", "/")).parts[-_NAMES:]:
                self._files.setdefault(part.partition(".")[0], entry)
                if found := _FILE_ID.match(part):
                    self._files.setdefault(found[0], entry)
        self._conversations.sort(key=lambda entry: entry.filename)
        if not self._conversations:
            raise ArchiveInvalid.at("the ZIP has no conversations.json")
        if len({_name(entry) for entry in self._conversations}) < len(self._conversations):
            raise ArchiveInvalid.at("the ZIP has two files of the same name with conversations")

    def _check(self, entry: zipfile.ZipInfo) -> None:
        name = _name(entry)
        if entry.flag_bits & 1:
            raise ArchiveInvalid.at("the ZIP is encrypted", place=name)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveInvalid.at("is packed in a way that is not supported", place=name)
        most = max(entry.compress_size * self._bounds.ratio, _RATIO_FROM_BYTES)
        if entry.file_size > most:
            raise ArchiveInvalid.at(f"unpacks to more than {self._bounds.ratio} times its size", place=name)


class _Guarded:
    """A source that limits the size of one read: zipfile reads the directory at once."""

    def __init__(self, source: BinaryIO) -> None:
        self.seek = source.seek
        self.tell = source.tell
        self.seekable = source.seekable
        self._source = source

    def read(self, size: int = -1) -> bytes:
        found = self._source.read(_DIRECTORY_BYTES + 1 if size < 0 else min(size, _DIRECTORY_BYTES + 1))
        if len(found) > _DIRECTORY_BYTES:
            raise ArchiveInvalid.at(f"the directory of the ZIP has more than {_DIRECTORY_BYTES} bytes")
        return found


class _Stream:
    """An entry that is unpacked as it is read."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, size: int) -> bytes:
        with _readable(self._name):
            return bytes(self._stream.read(size))


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raises ArchiveInvalid for errors of zipfile."""
    try:
        yield
    except _DAMAGED as error:
        raise ArchiveInvalid.at(f"the ZIP is damaged: {one_line(str(error), 100)}", place=name) from None


def _name(entry: zipfile.ZipInfo) -> str:
    """Returns the name of an entry without folders, for comparing and for showing."""
    return one_line(PurePosixPath(entry.filename.replace("\\", "/")).name, 100)
