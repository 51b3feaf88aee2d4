"""Results of tool calls as values."""

import sys
from datetime import datetime

import msgspec

from turnwire.domain.conversation.limits import MAX_LOG_CHARACTERS, MAX_LOG_LINES
from turnwire.domain.conversation.messages import File, ToolStatus, ToolUse
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import FileChange, PutFile


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[File, ...] = ()
    full_output: File | None = None
    """The complete output as a file, when `output` was cut."""
    contents: tuple[FileChange, ...] = ()
    """The changes that store these files."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory that it takes with its call; its files are in no message."""
        return sys.getsizeof(self.output) + sys.getsizeof(self.metadata_json)

    @property
    def content_bytes(self) -> int:
        """Size of the files, which are in memory until they are stored."""
        return sum(len(file.content) for file in self.contents if isinstance(file, PutFile))

    def apply_to(self, call: ToolUse, now: datetime | None = None) -> ToolUse:
        """Returns the call with this result.

        Args:
            call: The call.
            now: When the result arrived; None keeps the call's time.
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
            lease=None,
            finished_at=call.finished_at if now is None else now,
        )

    def is_of(self, call: ToolUse) -> bool:
        """Returns whether the call has exactly this result."""
        return call.status.settled and self.apply_to(call) == call


def with_log_line(call: ToolUse, line: str) -> ToolUse | None:
    """Returns the call with one more line in its log, cut if it is too long; None when the log is full."""
    number = len(call.logs)
    if number >= MAX_LOG_LINES:
        return None
    text = join_surrogates(line[:MAX_LOG_CHARACTERS]) if number < MAX_LOG_LINES - 1 else "further lines are not kept"
    return msgspec.structs.replace(call, logs=(*call.logs, text))
