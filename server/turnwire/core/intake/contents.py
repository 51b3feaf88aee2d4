"""The contents of a caller's message, with its files read."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from turnwire.core.intake.attachments import LoadedFile, NewFile, load_file
from turnwire.core.intake.inputs import NewPart, NewText
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.domain.conversation.messages import Content, File, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from turnwire.domain.errors import MessageTooLarge
from turnwire.domain.ids import IdMaker
from turnwire.domain.limits import Limits
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import FileChange


class Contents(Struct, frozen=True):
    """Contents in the order of the parts, and the files among them."""

    contents: tuple[Content, ...]
    files: tuple[LoadedFile, ...]

    def check_size(self, limits: Limits, other_bytes: int, field: str) -> None:
        """Refuses them if they are too large together with the rest of a message; see `load_contents`."""
        _check_size(other_bytes + sum(map(_size_bytes, self.contents)), limits, field)

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
        readable: Which paths may be read.
        limits: Their `max_message_bytes` applies to the whole request.
        other_bytes: Size of the rest of the request, such as its tools, which also counts towards the limit.
        field: The field of the request that has the parts, for errors.

    Raises:
        InvalidRequest: a file cannot be read.
        UploadNotFound: there is no upload that a part names.
        MessageTooLarge: a file, or the whole message, is over its limit.
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
