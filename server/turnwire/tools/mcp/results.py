"""Results of MCP tools: text for a model, and the files that came with it."""

import json
import mimetypes
import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from turnwire.domain.conversation.limits import MAX_RESULT_FILES
from turnwire.domain.text import decoded_base64
from turnwire.ports.tools import ToolFile, ToolOutcome

MAX_METADATA_BYTES = 16 * 1024
"""Larger structured content is not kept in addition to the text: every page and event with its message includes it."""

MAX_FILES_BYTES = 8 * 2**20
"""Maximum size of all files of one result: more than the pictures that models accept, and in base64 less than the
longest message that is read from a server."""

MAX_FILENAME_CHARS = 255
"""Maximum length of the name of a file: the limit of common file systems."""

_MIME = re.compile(r"[\w.+-]{1,127}/[\w.+-]{1,127}(?:[ \t]*;[ -~]{0,200})?", re.ASCII)

_UNKNOWN_MIME = "application/octet-stream"


def outcome_of(result: Any) -> ToolOutcome:
    """Returns the outcome of a CallToolResult: its texts, its files, and a line for each block that is not text."""
    files = _Files()
    texts = [_text_of(block, files) for block in result.content]
    structured = result.structured_content
    metadata = ""
    if structured is not None:
        as_json = json.dumps(structured, ensure_ascii=False, default=str)
        if all(block.type != "text" for block in result.content):
            texts.append(as_json)  # there is no text form of it
        elif isinstance(structured, dict) and len(as_json.encode("utf-8", "surrogatepass")) <= MAX_METADATA_BYTES:
            metadata = json.dumps({"structuredContent": structured}, ensure_ascii=False, default=str)
    return ToolOutcome(
        output="\n".join(texts), is_error=bool(result.is_error), metadata_json=metadata, files=tuple(files.kept)
    )


def failed(why: str) -> ToolOutcome:
    """Returns the outcome of a call that failed."""
    return ToolOutcome(output=why, is_error=True)


def explained(error: BaseException) -> str:
    """Returns a sentence for an exception. Unwraps the groups in which the SDK wraps errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(getattr(error, "message", "") or error)
    return (text or type(error).__name__)[:500]


def progress_line(progress: float, total: float | None, message: str | None) -> str:
    """Returns a progress notification as a line, such as "3/10 reading"."""
    share = f"{progress:g}" + (f"/{total:g}" if total is not None else "")
    return f"{share} {message}" if message else share


class _Files:
    """The files of one result, within the limits."""

    def __init__(self) -> None:
        self.kept: list[ToolFile] = []
        self._bytes = 0

    def add(self, data: str, mime: str | None, uri: str = "") -> str:
        """Adds a file if it is valid and within the limits.

        Args:
            data: Its bytes in base64.
            mime: Its media type; None derives it from the file name.
            uri: Its source; "" when unknown.

        Returns:
            A line that names the file, for models that cannot see it, or gives the reason for leaving it out.
        """
        name = _filename_of(uri)
        mime = mime if mime and _MIME.fullmatch(mime) else mimetypes.guess_type(name)[0] or _UNKNOWN_MIME
        what = f"{name}, {mime}" if name else mime
        # exact for valid base64; avoids decoding a huge file only to drop it
        size = len(data) // 4 * 3 - data[-2:].count("=")
        if len(self.kept) == MAX_RESULT_FILES:
            return f"[file left out: {what}, {size} bytes; a result may have {MAX_RESULT_FILES} files]"
        if self._bytes + size > MAX_FILES_BYTES:
            return f"[file left out: {what}, {size} bytes; the files of a result may have {MAX_FILES_BYTES} bytes]"
        try:
            content = decoded_base64(data)
        except ValueError:
            return f"[file left out: {what}; its base64 is broken]"
        if len(content) != size:  # excess padding, which the decoder accepts
            return f"[file left out: {what}; its base64 is broken]"
        if not content:
            return f"[file left out: {what}; it is empty]"  # providers reject a request with an empty file
        self._bytes += len(content)
        self.kept.append(ToolFile(content=content, mime=mime, filename=name))
        return f"[file {len(self.kept)}: {what}, {len(content)} bytes]"


def _text_of(block: Any, files: _Files) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return files.add(block.data, block.mime_type)
        case "resource_link":
            return f"[resource {block.uri}]"
        case "resource":
            text = getattr(block.resource, "text", None)
            if text is not None:
                return str(text)
            return files.add(block.resource.blob, block.resource.mime_type, block.resource.uri)
    return f"[{block.type}, not shown]"


def _filename_of(uri: str) -> str:
    """Returns the last segment of a URI's path as a file name; "" when there is none."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme and not parts.path.startswith("/"):
        return ""  # such as urn:isbn:… or data:…, which have no path
    name = PurePosixPath(unquote(parts.path).replace("\\", "/")).name
    name = "".join(char for char in name if char.isprintable()).strip()
    return "" if name == ".." else name[:MAX_FILENAME_CHARS]
