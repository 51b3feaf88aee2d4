"""Results of tool calls, from the client or from a tool of the server, ready to be stored."""

from datetime import datetime

import msgspec

from turnwire.core.intake.attachments import UNKNOWN_MIME, load_file, reference_to
from turnwire.core.intake.inputs import NewToolResult
from turnwire.core.intake.readable_files import ReadableFiles, too_large
from turnwire.core.settings import Limits
from turnwire.domain.conversation.messages import File, ToolStatus, ToolUse
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import PutFile
from turnwire.ports.tools import ToolOutcome

MAX_NAME_CHARS = 255
"""Of the name of a tool's file: what file systems take."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[File, ...] = ()
    full_output: File | None = None
    """All of the output, when it was cut."""
    contents: tuple[PutFile, ...] = ()
    """The bytes of all these files."""

    def apply_to(self, call: ToolUse, now: datetime | None = None) -> ToolUse:
        """Returns the call with this result.

        Args:
            call: The call.
            now: When the result came; None leaves the time that the call has.
        """
        return msgspec.structs.replace(
            call,
            status=ToolStatus.ERROR if self.is_error else ToolStatus.SUCCESS,
            output=None if self.is_error else self.output,
            error=self.output if self.is_error else None,
            metadata_json=self.metadata_json,
            files=self.files,
            full_output=self.full_output,
            permission_id="",
            finished_at=call.finished_at if now is None else now,
        )

    def is_of(self, call: ToolUse) -> bool:
        """Tells whether the call holds exactly this result."""
        return call.status.settled and self.apply_to(call) == call


async def client_result(new: NewToolResult, readable: ReadableFiles, limits: Limits) -> CallResult:
    """Returns the result that a client submits, with its files read.

    Args:
        new: The result.
        readable: Which paths may be read.
        limits: Of a message.

    Raises:
        InvalidRequest: a file is wrong, or the whole is too large.
    """
    loaded, size = [], len(new.output.encode()) + len(new.metadata_json.encode())
    for index, file in enumerate(new.files):
        found = await load_file(file, f"files[{index}]", readable)
        loaded.append(found)
        size += len(found.content)
    if size > limits.max_message_bytes:
        raise too_large("output", size, limits.max_message_bytes)
    return CallResult(
        output=new.output,
        is_error=new.is_error,
        metadata_json=new.metadata_json,
        files=tuple(file.reference for file in loaded),
        contents=tuple(PutFile(file.reference.sha256, file.content) for file in loaded),
    )


def server_result(outcome: ToolOutcome, max_output_bytes: int, max_file_bytes: int) -> CallResult:
    """Returns the result of a tool of the server: its output cut to the limit, then with all of it as a file."""
    output = join_surrogates(outcome.output)
    kept = cut_to_bytes(output, max_output_bytes)
    fitting = [file for file in outcome.files if len(file.content) <= max_file_bytes]
    files = [(_reference(file.content, file.mime, file.filename), file.content) for file in fitting]
    whole = []
    if kept is not output and len(data := output.encode()) <= max_file_bytes:
        whole = [(_reference(data, "text/plain", "output.txt"), data)]
    if len(fitting) < len(outcome.files):
        left_out = len(outcome.files) - len(fitting)
        kept += f"\n[{left_out} files of the result are larger than {max_file_bytes} bytes and were left out]"
    return CallResult(
        output=kept,
        is_error=outcome.is_error,
        metadata_json=join_surrogates(outcome.metadata_json),
        files=tuple(reference for reference, _ in files),
        full_output=whole[0][0] if whole else None,
        contents=tuple(PutFile(reference.sha256, content) for reference, content in [*files, *whole]),
    )


def cut_to_bytes(text: str, max_bytes: int) -> str:
    """Returns the text itself, or cut between two characters and with a note when it is longer than the limit."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the output has {len(data)} bytes, these are the first {max_bytes}]"


def _reference(content: bytes, mime: str, filename: str) -> File:
    name = join_surrogates(filename).replace("\0", "")[:MAX_NAME_CHARS]
    return reference_to(content, join_surrogates(mime) or UNKNOWN_MIME, name)
