"""The contents of a caller's message, with its files: bytes, data URIs, paths on the server, or uploads.

A file is read once, when its message is accepted, and stored under its hash. An upload is not read at all: the commit
turns it into a file. `core/intake/readable_files.py` decides which paths may be read.
"""

import asyncio
import hashlib
import mimetypes
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import PurePosixPath

import msgspec
from msgspec import Struct

from turnwire.core.intake.readable_files import ReadableFiles, on_file_thread, too_large
from turnwire.core.intake.requests import NewFile, NewPart, NewText
from turnwire.domain.conversation.file_forms import PLAIN_TEXT, file_form, is_text_type, text_in
from turnwire.domain.conversation.limits import MIME
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FileForm,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.errors import InvalidRequest, MessageTooLarge
from turnwire.domain.ids import IdMaker
from turnwire.domain.limits import Limits
from turnwire.domain.text import decoded_base64, utf8_bytes
from turnwire.ports.commit import FileChange, PutFile, UseUpload

_DATA_URI = re.compile(r"data:(?P<mime>[^;,]*)(?P<parameters>(?:;[^;,]*)*?)(?P<base64>;base64)?,", re.IGNORECASE)
UNKNOWN_MIME = "application/octet-stream"

KNOWN_AFTER_USE = timedelta(hours=1)
"""Time for which a result that names an upload may be sent again: far longer than clients try."""

MAX_HEAD_CHARS = 1024
"""Maximum length of the head of a data URI: a media type with parameters."""

LARGE_BYTES = 256 * 1024
"""Size above which a file is decoded and hashed on a thread. Several of this size take well under a millisecond."""


class LoadedFile(Struct, frozen=True):
    """A file that can be stored, with the reference that a message will hold."""

    reference: File
    content: bytes
    """Empty for an upload, whose bytes stay in the store."""
    upload_id: str = ""
    """The upload that has the bytes; "" when `content` has them."""

    def change(self, now: datetime) -> FileChange:
        """Returns the change that stores the file; `now` is the time of its commit."""
        if self.upload_id:
            return UseUpload(self.upload_id, self.reference.sha256, now + KNOWN_AFTER_USE)
        return PutFile(self.reference.sha256, self.content)


def is_media_type(text: str) -> bool:
    """Returns whether a text has the form of a media type, such as "image/png"."""
    return MIME.fullmatch(text) is not None


async def load_file(new: NewFile, field: str, readable: ReadableFiles) -> LoadedFile:
    """Returns an attachment with its bytes, at most `readable.max_bytes` of them.

    Args:
        new: The attachment.
        field: Path of the part in the request, for errors.
        readable: The paths that may be read, the uploads, and the size limit.

    Raises:
        InvalidRequest: not exactly one of url, path, data and upload_id is set, the data URI is malformed, the path is
            not allowed or not a file, or the upload is not complete.
        UploadNotFound: there is no such upload.
        MessageTooLarge: the file is over the limit.
    """
    if new.mime and not is_media_type(new.mime):
        raise InvalidRequest.of(f"{field}.mime", "is not a media type such as image/png")
    if bool(new.url) + bool(new.path) + (new.data is not None) + bool(new.upload_id) != 1:
        raise InvalidRequest.of(f"{field}.url", "give exactly one of url, path, data and upload_id", "REQUIRED")
    if new.upload_id:
        return await _uploaded(new, f"{field}.upload_id", readable)
    if new.data is not None:
        if len(new.data) > readable.max_bytes:
            raise too_large(f"{field}.data", len(new.data), readable.max_bytes)
        mime, content, name = "", new.data, new.filename
    elif new.url:
        decode = partial(decode_data_uri, new.url, f"{field}.url", readable.max_bytes)
        mime, content = await asyncio.to_thread(decode) if len(new.url) > LARGE_BYTES else decode()
        if mime and not is_media_type(mime):
            raise InvalidRequest.of(f"{field}.url", "the data URI's media type is not one such as image/png")
        name = new.filename
    else:
        content = await on_file_thread(readable.read, new.path, f"{field}.path")
        mime, name = "", new.filename or PurePosixPath(new.path).name
    name = _shown_name(name)
    refer = partial(reference_to, content, new.mime or mime, name)
    reference = await asyncio.to_thread(refer) if len(content) > LARGE_BYTES else refer()
    return LoadedFile(msgspec.structs.replace(reference, path=new.path), content)


async def _uploaded(new: NewFile, field: str, readable: ReadableFiles) -> LoadedFile:
    """Returns an upload as a file; the upload supplies what the request leaves out."""
    upload = await readable.upload(new.upload_id, field)
    if upload.received_bytes > readable.max_bytes:
        raise too_large(field, upload.received_bytes, readable.max_bytes)
    name = _shown_name(new.filename or upload.filename)
    reference = File(
        sha256=upload.sha256,
        size_bytes=upload.received_bytes,
        mime=new.mime or upload.mime or mimetypes.guess_type(name)[0] or UNKNOWN_MIME,
        filename=name,
        language=language_of(name),
    )
    return LoadedFile(reference, b"", new.upload_id)


def _shown_name(name: str) -> str:
    """Returns a file name without folders."""
    name = PurePosixPath(name.replace("\\", "/")).name
    return "" if name == ".." else name


def reference_to(content: bytes, mime: str, filename: str) -> File:
    """Returns a reference to the bytes, for use in a message.

    Args:
        content: The bytes.
        mime: The declared type; "" for the one that the name or the bytes suggest.
        filename: The name without folders.
    """
    language = language_of(filename)
    mime = mime or _guessed_type(content, filename, language)
    return File(
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        mime=mime,
        filename=filename,
        language=language,
        form=file_form(content, mime, language),
    )


def _guessed_type(content: bytes, filename: str, language: str) -> str:
    """Returns the type that the name suggests. Text whose name suggests another type, such as go.mod, is plain text."""
    by_name = mimetypes.guess_type(filename)[0] or UNKNOWN_MIME
    is_right = is_text_type(by_name) or file_form(content, by_name, "") in (FileForm.IMAGE, FileForm.DOCUMENT)
    return by_name if is_right or text_in(content, UNKNOWN_MIME, language) is None else PLAIN_TEXT


def decode_data_uri(url: str, field: str, max_bytes: int) -> tuple[str, bytes]:
    """Returns media type ("" when absent) and bytes of a base64 data URI (RFC 2397), decoded strictly.

    Raises:
        InvalidRequest: the text is not a data URI, not base64, or its base64 is malformed.
        MessageTooLarge: the content is larger than max_bytes.
    """
    match = _DATA_URI.match(url, 0, url.find(",", 0, MAX_HEAD_CHARS) + 1)
    if match is None:
        raise InvalidRequest.of(field, "is not a data URI (data:MIME;base64,DATA)")
    if match["base64"] is None:
        raise InvalidRequest.of(field, "the data URI is not base64 encoded", "BAD_BASE64")
    size = (len(url) - match.end()) * 3 // 4
    if size > max_bytes + 2:
        raise too_large(field, size, max_bytes)
    try:
        content = decoded_base64(url, match.end())
    except ValueError as error:
        raise InvalidRequest.of(field, "the data URI holds malformed base64", "BAD_BASE64") from error
    if len(content) > max_bytes:
        raise too_large(field, len(content), max_bytes)
    return match["mime"], content


_BY_SUFFIX = {
    "bash": "shell", "bat": "batch", "c": "c", "cc": "cpp", "clj": "clojure", "cpp": "cpp", "cs": "csharp",
    "css": "css", "csv": "csv", "cxx": "cpp", "dart": "dart", "diff": "diff", "el": "elisp", "elm": "elm",
    "erl": "erlang", "ex": "elixir", "exs": "elixir", "fish": "shell", "fs": "fsharp", "go": "go",
    "graphql": "graphql", "groovy": "groovy", "h": "c", "hh": "cpp", "hpp": "cpp", "hs": "haskell", "htm": "html",
    "html": "html", "ini": "ini", "java": "java", "jl": "julia", "js": "javascript", "json": "json",
    "jsonl": "json", "jsx": "javascript", "kt": "kotlin", "kts": "kotlin", "less": "less", "lua": "lua",
    "m": "objective-c", "md": "markdown", "mjs": "javascript", "ml": "ocaml", "mm": "objective-c", "nim": "nim",
    "nix": "nix", "patch": "diff", "php": "php", "pl": "perl", "proto": "protobuf", "ps1": "powershell",
    "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "rst": "restructuredtext",
    "scala": "scala", "scss": "scss", "sh": "shell", "sql": "sql", "svelte": "svelte", "swift": "swift",
    "tcl": "tcl", "tex": "latex", "tf": "terraform", "toml": "toml", "ts": "typescript", "tsx": "typescript",
    "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig", "zsh": "shell",
}  # fmt: skip

_BY_NAME = {
    "cmakelists.txt": "cmake", "dockerfile": "dockerfile", "gemfile": "ruby", "makefile": "make", "rakefile": "ruby",
}  # fmt: skip


def language_of(filename: str) -> str:
    """Returns the language for a file name, in lower case; "" when unknown."""
    path = PurePosixPath(filename.lower())
    return _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix.removeprefix("."), "")


class Contents(Struct, frozen=True):
    """Contents in the order of the parts, and the files among them."""

    contents: tuple[Content, ...]
    files: tuple[LoadedFile, ...]

    def check_size(self, limits: Limits, other_bytes: int, field: str) -> None:
        """Rejects them if they are too large together with the rest of the message; see `load_contents`."""
        _check_size(other_bytes + self.size_bytes, limits, field)

    @property
    def size_bytes(self) -> int:
        """The bytes of all texts and files."""
        return sum(map(_size_bytes, self.contents))

    def parts(self, new_id: IdMaker) -> tuple[Part, ...]:
        """Returns the contents as parts with new ids."""
        return tuple(
            Part(part_id=new_id("prt"), index=index, content=content) for index, content in enumerate(self.contents)
        )

    def changes(self, now: datetime) -> tuple[FileChange, ...]:
        """Returns the changes that store the files; `now` is the time of their commit."""
        return tuple(file.change(now) for file in self.files)


async def load_contents(
    parts: Sequence[NewPart], readable: ReadableFiles, limits: Limits, other_bytes: int = 0, field: str = "parts"
) -> Contents:
    """Reads the parts of a message.

    Args:
        parts: The parts.
        readable: The files that may be read.
        limits: `max_message_bytes` applies to the complete request.
        other_bytes: Size of the rest of the request, such as its tools, which also counts towards the limit.
        field: The field of the request that has the parts, for errors.

    Raises:
        InvalidRequest: a file cannot be read.
        UploadNotFound: a part names an upload that does not exist.
        MessageTooLarge: a file, or the complete message, is over its limit.
    """
    contents, files, size = list[Content](), list[LoadedFile](), other_bytes
    _check_size(size, limits, field)
    for index, part in enumerate(parts):
        if isinstance(part, NewText):
            contents.append(Text(part.text))
        elif isinstance(part, NewFile):
            loaded = await load_file(part, f"{field}[{index}].file", readable)
            contents.append(loaded.reference)
            files.append(loaded)
        else:
            contents.append(part)
        size += _size_bytes(contents[-1])
        _check_size(size, limits, field)
    return Contents(tuple(contents), tuple(files))


def _check_size(size: int, limits: Limits, field: str) -> None:
    if size > limits.max_message_bytes:
        raise MessageTooLarge.over("limits.max_message_bytes", limits.max_message_bytes, field, size)


def _size_bytes(content: Content) -> int:
    match content:
        case File():
            return content.size_bytes
        case ToolResult():
            return utf8_bytes(content.output)
        case Text() | Reasoning() | Refusal():
            return utf8_bytes(content.text)
        case ToolUse():
            texts = (content.name, content.input_json, content.output or "", content.error or "", content.metadata_json)
            return sum(map(utf8_bytes, texts))
    return 0
