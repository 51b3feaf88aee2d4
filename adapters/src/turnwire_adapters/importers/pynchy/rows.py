"""Classification of rows by sender and text, and their text without the decoration that old rows have.

Rows of today's pynchy have a type, which wins; rows before that show only by their sender what they are. All of this is
pure: a row may be classified again at any time.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TYPES = ("user", "assistant", "system", "host", "tool_result")
"""Types that a message has in pynchy and here."""

BOT = "bot"
"""The sender of the assistant's messages, whatever its name."""

TRACES = {
    "system": "system",
    "thinking": "assistant",
    "tool_use": "assistant",
    "tool_result": "tool_result",
    "result_meta": "assistant",
}
"""Senders whose rows are no conversation, with their true type: notices of the system, and traces of the agent."""

_COMMAND_OUTPUT = re.compile(r"(?P<mark>[✅❌])\ufe0f? Command output(?: \(exit (?P<exit>-?[0-9]{1,10})\))?:")
"""Matches the beginning of the text of a command's output."""

_FENCE = "```"


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Type of a row, with the facts that the type leaves out."""

    type: str
    """One of `TYPES`; another word where a program has stored one."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts beyond the type: `legacy_kind` of a row that is neither shown nor sent to a model; of a command
    `exit_code`, or `failed` where the text has a mark and no code."""

    @property
    def legacy_kind(self) -> str | None:
        """Set on rows that are no conversation."""
        return self.facts.get("legacy_kind")

    @property
    def metadata(self) -> str | None:
        """The facts as a row stores them: JSON text; None for none."""
        return json.dumps(self.facts, separators=(",", ":")) if self.facts else None


def classify(
    sender: str | None, content: str, bot_names: frozenset[str] = frozenset(), *, reclassify: bool = False
) -> Classification:
    """Returns what a row without a type is.

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
        return Classification(type="host")
    if sender == "command_output":
        return Classification(type="tool_result", facts=_outcome(content))
    if sender == BOT or sender in bot_names:
        return Classification(type="assistant")
    if sender not in TRACES:
        return Classification(type="user")
    kind = {"legacy_kind": sender}
    if not reclassify:
        return Classification(type="user", facts=kind)
    return Classification(type=TRACES[sender], facts={} if sender == "system" else kind)


def plain_text(
    sender: str | None, content: str, bot_names: frozenset[str] = frozenset(), *, sender_name: str | None = None
) -> str:
    """Returns the text of a row without decoration. Text of people, of traces and of unknown form is returned as it is.

    Args:
        sender: None when the row has none.
        content: The text of the row.
        bot_names: Names of the assistant besides "bot".
        sender_name: The name that the row shows, which counts as one of the assistant's when the assistant wrote it.
    """
    if sender == "host":
        return content.removeprefix("[host] ")
    if sender == "command_output":
        return _output(content)
    if sender == BOT or sender in bot_names:
        names = {name for name in (*bot_names, sender_name, sender) if name}
        found = [name for name in names if content.startswith(f"{name}: ")]
        return content.removeprefix(f"{max(found, key=len)}: ") if found else content
    if sender == "system":
        return content.removeprefix("[system] ")
    return content


def _outcome(content: str) -> dict[str, Any]:
    found = _COMMAND_OUTPUT.match(content)
    if found is None:
        return {}
    if found["exit"] is not None:
        return {"exit_code": int(found["exit"])}
    return {"failed": found["mark"] == "❌"}


def _output(content: str) -> str:
    """Returns what a command has printed. Only the outer fence is taken off: the output may have fences too."""
    found = _COMMAND_OUTPUT.match(content)
    if found is None:
        return content
    body = content[found.end() :].removeprefix("\n")
    fenced = len(body) >= 2 * len(_FENCE) and body.startswith(_FENCE) and body.endswith(_FENCE)
    if not fenced:
        return body.removeprefix(" ")
    return body[len(_FENCE) : -len(_FENCE)].removeprefix("\n").removesuffix("\n")
