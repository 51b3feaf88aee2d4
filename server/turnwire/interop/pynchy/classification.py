"""What a row is, by its sender and its text."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import MessageType

BOT = "bot"
"""The sender of the assistant's messages, whatever its name."""

COMMAND_OUTPUT = re.compile(r"(?P<mark>[✅❌])\ufe0f? Command output(?: \(exit (?P<exit>-?[0-9]{1,10})\))?:")
"""How the text of a command's output begins."""


class LegacyKind(StrEnum):
    """Rows that are no conversation, by their sender: notices of the system, and traces of the agent as JSON."""

    SYSTEM = "system"
    THINKING = "thinking"
    TOOL_USE = "tool_use"
    TOOL_RESULT = "tool_result"
    RESULT_META = "result_meta"


_KINDS = {str(kind): kind for kind in LegacyKind}

_TRUE_TYPES = {
    LegacyKind.SYSTEM: MessageType.SYSTEM,
    LegacyKind.THINKING: MessageType.ASSISTANT,
    LegacyKind.TOOL_USE: MessageType.ASSISTANT,
    LegacyKind.TOOL_RESULT: MessageType.TOOL_RESULT,
    LegacyKind.RESULT_META: MessageType.ASSISTANT,
}


class Classification(Struct, frozen=True, kw_only=True):
    """What a row is."""

    type: MessageType
    legacy_kind: LegacyKind | None = None
    """Set on rows that are no conversation: they are neither shown nor sent to a model."""
    exit_code: int | None = None
    """Of a command; None when the row does not name it."""
    failed: bool | None = None
    """Whether a command failed, by the mark of its output, when there is no exit code; None when it has no mark."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the type does not say; empty for most rows."""
        facts = {"legacy_kind": self.legacy_kind, "exit_code": self.exit_code, "failed": self.failed}
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def metadata_json(self) -> str | None:
        """The metadata as a row stores it; None for none."""
        return msgspec.json.encode(self.metadata).decode() if self.metadata else None


def classify(
    sender: str | None, content: str, bot_names: frozenset[str] = frozenset(), *, reclassify: bool = False
) -> Classification:
    """Returns what a row is. A pure function, so a row may be classified again at any time.

    Four rules decide on the type, the first that fits: "host" is the host, "command_output" a tool result, the bot
    and its names the assistant, everybody else a user. Only exact names count, and the text decides on nothing, so a
    person may write like a program.

    Args:
        sender: None when the row has none.
        content: The text, of which only a command's output is read.
        bot_names: Names of the assistant besides "bot".
        reclassify: Whether notices and traces get the type that fits them instead of user. A notice is then a
            message as any other; a trace stays one.
    """
    if sender == "host":
        return Classification(type=MessageType.HOST)
    if sender == "command_output":
        return _command_output(content)
    if sender == BOT or sender in bot_names:
        return Classification(type=MessageType.ASSISTANT)
    kind = _KINDS.get(sender or "")
    if kind is None:
        return Classification(type=MessageType.USER)
    if not reclassify:
        return Classification(type=MessageType.USER, legacy_kind=kind)
    return Classification(type=_TRUE_TYPES[kind], legacy_kind=None if kind is LegacyKind.SYSTEM else kind)


def _command_output(content: str) -> Classification:
    found = COMMAND_OUTPUT.match(content)
    if found is None:
        return Classification(type=MessageType.TOOL_RESULT)
    if found["exit"] is not None:
        return Classification(type=MessageType.TOOL_RESULT, exit_code=int(found["exit"]))
    return Classification(type=MessageType.TOOL_RESULT, failed=found["mark"] == "❌")
