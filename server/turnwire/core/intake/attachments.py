"""Files that come with a message: from a data URI, or read from a folder that the caller may name.

A file is read once, when its message is accepted, and stored by its hash. Nothing outside the session's directory and
the configured roots is ever opened: symbolic links are resolved first, and the resolved path decides.
"""

import asyncio
import base64
import binascii
import hashlib
import mimetypes
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from turnwire.core.intake.languages import language_of
from turnwire.domain.conversation.messages import File
from turnwire.domain.errors import InvalidRequest, MessageTooLarge

_DATA_URI = re.compile(r"data:(?P<mime>[^;,]*)(?P<parameters>(?:;[^;,]*)*?)(?P<base64>;base64)?,", re.IGNORECASE)
_MIME = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;.*)?", re.ASCII)
KERNEL_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Never read, whatever is allowed: the environment of the server, with its keys, is a file there."""

UNKNOWN_MIME = "application/octet-stream"


class NewFile(Struct, frozen=True, kw_only=True):
    """A file as the client sent it: exactly one of url and path is not empty."""

    mime: str = ""
    filename: str = ""
    url: str = ""
    path: str = ""


class LoadedFile(Struct, frozen=True):
    """A file that was read, with the reference that a message will hold."""

    reference: File
    content: bytes


async def load_file(new: NewFile, field: str, directory: str, roots: Sequence[Path], max_bytes: int) -> LoadedFile:
    """Reads the bytes of an attachment.

    Args:
        new: The attachment.
        field: Path of the part in the request, for errors.
        directory: The session's working directory; "" for none.
        roots: Further folders that may be read.
        max_bytes: Size limit, inclusive.

    Raises:
        InvalidRequest: neither or both of url and path, a malformed data URI, a path that is not allowed or no file.
        MessageTooLarge: the file is over the limit.
    """
    if new.mime and not _MIME.fullmatch(new.mime):
        raise InvalidRequest.of(f"{field}.mime", "is not a media type such as image/png")
    if bool(new.url) == bool(new.path):
        raise InvalidRequest.of(f"{field}.url", "give either url or path", "REQUIRED")
    if new.url:
        mime, content = decode_data_uri(new.url, f"{field}.url", max_bytes)
        if mime and not _MIME.fullmatch(mime):
            raise InvalidRequest.of(f"{field}.url", "the data URI's media type is not one such as image/png")
        name = new.filename
    else:
        content = await asyncio.to_thread(_read_path, new.path, f"{field}.path", directory, roots, max_bytes)
        mime, name = "", new.filename or PurePosixPath(new.path).name
    name = PurePosixPath(name.replace("\\", "/")).name
    name = "" if name == ".." else name
    mime = new.mime or mime or mimetypes.guess_type(name)[0] or UNKNOWN_MIME
    return LoadedFile(msgspec.structs.replace(reference_to(content, mime, name), path=new.path), content)


def reference_to(content: bytes, mime: str, filename: str) -> File:
    """Returns the reference that a message holds to some bytes."""
    return File(
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        mime=mime,
        filename=filename,
        language=language_of(filename),
    )


def decode_data_uri(url: str, field: str, max_bytes: int) -> tuple[str, bytes]:
    """Returns media type ("" when absent) and bytes of a base64 data URI (RFC 2397), decoded strictly.

    Raises:
        InvalidRequest: it is no data URI, not base64, or its base64 is malformed.
        MessageTooLarge: it holds more than max_bytes.
    """
    match = _DATA_URI.match(url)
    if match is None:
        raise InvalidRequest.of(field, "is not a data URI (data:MIME;base64,DATA)")
    if match["base64"] is None:
        raise InvalidRequest.of(field, "the data URI is not base64 encoded", "BAD_BASE64")
    size = (len(url) - match.end()) * 3 // 4
    if size > max_bytes + 2:
        raise too_large(field, size, max_bytes)
    try:
        content = base64.b64decode(url[match.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest.of(field, "the data URI holds malformed base64", "BAD_BASE64") from error
    if len(content) > max_bytes:
        raise too_large(field, len(content), max_bytes)
    return match["mime"], content


def too_large(field: str, actual_bytes: int, max_bytes: int) -> MessageTooLarge:
    """Returns the error for content over a limit."""
    return MessageTooLarge.of(
        field,
        f"holds {actual_bytes} bytes, at most {max_bytes} are allowed",
        "TOO_LARGE",
        maxBytes=str(max_bytes),
        actualBytes=str(actual_bytes),
    )


def _read_path(path: str, field: str, directory: str, roots: Sequence[Path], max_bytes: int) -> bytes:
    """Reads a file inside the allowed folders. Blocking."""
    if "\0" in path:
        raise InvalidRequest.of(field, "holds a NUL character")
    folders = [Path(directory), *roots] if directory else [*roots]
    allowed = [folder.resolve() for folder in folders]
    named = Path(path)
    if not named.is_absolute() and not directory:
        raise InvalidRequest.of(field, "is relative and the session has no directory")
    try:
        target = (Path(directory) / named).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        # the same words for "not there" and "not allowed", or a caller could explore the disk
        raise _not_readable(field) from error
    inside = any(target.is_relative_to(folder) for folder in allowed)
    if not inside or any(target.is_relative_to(folder) for folder in KERNEL_FOLDERS):
        raise _not_readable(field)
    try:
        # O_NOFOLLOW and O_NONBLOCK: the path was resolved, so a link or a pipe here has just been put in its place
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _not_readable(field) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # asked before fdopen, which fails on a folder and leaves it open
        os.close(descriptor)
        raise _not_readable(field)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > max_bytes:
            raise too_large(field, status.st_size, max_bytes)
        try:
            content = file.read(max_bytes + 1)
        except OSError as error:
            raise _not_readable(field) from error
    if len(content) > max_bytes:
        raise too_large(field, len(content), max_bytes)
    return content


def _not_readable(field: str) -> InvalidRequest:
    return InvalidRequest.of(
        field, "is not a readable file inside the session's directory or an allowed root", "PATH_NOT_ALLOWED"
    )
