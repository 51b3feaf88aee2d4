"""Files of a foreign archive. Their bytes are read together with their message, and not before."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct

from turnwire.domain.conversation.file_forms import file_form
from turnwire.domain.conversation.messages import File
from turnwire.domain.text import one_line

_MIME = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_HEAD_CHARS = 1_000
UNKNOWN_MIME = "application/octet-stream"
_BY_SUFFIX = {
    "csv": "text/csv", "gif": "image/gif", "html": "text/html", "jpeg": "image/jpeg", "jpg": "image/jpeg",
    "json": "application/json", "md": "text/markdown", "mp3": "audio/mpeg", "mp4": "video/mp4",
    "pdf": "application/pdf", "png": "image/png", "txt": "text/plain", "wav": "audio/wav", "webp": "image/webp",
}  # fmt: skip
_BY_BEGINNING = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"%PDF-": "application/pdf",
}  # fmt: skip


class NotCarried(Exception):
    """A file is not in the archive, or cannot be read from it."""

    def __init__(self, reason: str, explanation: str) -> None:
        """Takes the texts of an `ImportProblem`."""
        super().__init__(explanation)
        self.reason = reason
        self.explanation = explanation


class Attachment(Struct, frozen=True, kw_only=True):
    """A file of a message, before it is read."""

    load: Callable[[], bytes]
    """Returns the bytes, or raises NotCarried."""
    mime: str = ""
    """"" when the archive has none."""
    filename: str = ""
    """The name in the archive."""
    place: str = ""


def reference(attachment: Attachment, content: bytes) -> File:
    """Returns the reference to a file that was read. The name has no folders; a missing type is guessed."""
    name = PurePosixPath(attachment.filename.replace("\\", "/")).name
    name = "" if name == ".." else one_line(name, 255)
    mime = attachment.mime if len(attachment.mime) <= 255 and _MIME.fullmatch(attachment.mime) else ""
    mime = mime or _BY_SUFFIX.get(PurePosixPath(name).suffix.lower().removeprefix(".")) or _type_of(content)
    return File(
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        mime=mime,
        filename=name,
        form=file_form(content, mime, ""),
    )


def from_url(url: str, max_bytes: int, *, mime: str = "", filename: str = "", place: str = "") -> Attachment:
    """Returns the file of a data URI. Loading any other URL raises NotCarried, because nothing is ever fetched."""
    head = _head(url)
    load = (lambda: _unreachable(url)) if head is None else (lambda: _decoded(url, head, max_bytes))
    own = "" if head is None else head.removeprefix(head[:5]).partition(";")[0]
    return Attachment(load=load, mime=mime or own, filename=filename, place=place)


def from_base64(text: str, max_bytes: int, *, mime: str = "", filename: str = "", place: str = "") -> Attachment:
    """Returns the file of a base64 text."""
    return Attachment(load=lambda: decoded(text, 0, max_bytes), mime=mime, filename=filename, place=place)


def from_text(text: str, max_bytes: int, *, filename: str = "", place: str = "") -> Attachment:
    """Returns a file with a text as its content."""
    return Attachment(
        load=lambda: within_bound(text.encode(), max_bytes), mime="text/plain", filename=filename, place=place
    )


def within_bound(content: bytes, max_bytes: int) -> bytes:
    """Returns the content, or raises NotCarried when it is too large."""
    if len(content) > max_bytes:
        raise too_large(len(content), max_bytes)
    return content


def too_large(size: int, max_bytes: int) -> NotCarried:
    """Returns the error for a file over the limit."""
    return NotCarried("FILE_TOO_LARGE", f"The file has {size} bytes, and the most are {max_bytes}.")


def decoded(text: str, start: int, max_bytes: int) -> bytes:
    """Returns the bytes of base64 from a position on, or raises NotCarried."""
    size = (len(text) - start) * 3 // 4
    if size > max_bytes + 2:
        raise too_large(size, max_bytes)
    try:
        return within_bound(base64.b64decode(text[start:], validate=True), max_bytes)
    except (binascii.Error, ValueError):
        raise NotCarried("FILE_MALFORMED", "The file is not base64.") from None


def _head(url: str) -> str | None:
    """Returns a data URI up to its comma, which comes early in every valid one; None for other URLs."""
    end = url.find(",", 0, _HEAD_CHARS) if url[:5].lower() == "data:" else -1
    return None if end < 0 else url[:end]


def _decoded(url: str, head: str, max_bytes: int) -> bytes:
    if head.rpartition(";")[2].lower() != "base64":
        raise NotCarried("FILE_MALFORMED", "The data URI is not base64.")
    return decoded(url, len(head) + 1, max_bytes)


def _unreachable(url: str) -> bytes:
    shown = one_line(url, 200)
    raise NotCarried("FILE_NOT_IN_ARCHIVE", f'The file "{shown}" is not in the archive, and nothing is fetched.')


def _type_of(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _BY_BEGINNING.items() if content.startswith(start)), UNKNOWN_MIME)
