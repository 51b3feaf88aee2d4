"""Writes archives of Turnwire's own format, which its documentation describes for people who write tools.

An importer gives conversations as records, each session before its messages; `write` makes lines of them. Equal records
give equal bytes, so what a server has already is found again.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

from turnwire_adapters.importers.problems import Problem

VERSION = 3
"""Version of the archive format that is written."""

MAX_NAME_CHARS = 1024
"""Longest title and longest name of a sender; the rest is kept beside it."""

MAX_METADATA_BYTES = 64 * 1024
"""Largest `metadata_json`."""

MAX_SYSTEM_CHARS = 65_536
"""Longest system prompt of a session."""

MAX_TEXT_BYTES = 32 * 2**20
"""Largest text of a message; servers refuse a larger one unless they are configured otherwise."""

NAMED_PROBLEMS = 1_000
"""Problems that are named; the others are counted."""

Json = dict[str, Any]


@dataclass(frozen=True)
class SessionRecord:
    """Begins a session."""

    session: Json


@dataclass(frozen=True)
class MessageRecord:
    """A message of the session before it. `hidden`: no list shows it, and no model is sent it."""

    message: Json
    hidden: bool = False


Record = SessionRecord | MessageRecord | Problem


@dataclass(kw_only=True)
class Summary:
    """Counts of the contents of an archive."""

    sessions: int = 0
    messages: int = 0
    hidden: int = 0
    types: Counter[str] = field(default_factory=Counter)
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    """The first ones."""

    def count(self, record: Record) -> None:
        """Adds a record."""
        match record:
            case SessionRecord():
                self.sessions += 1
            case MessageRecord(message, hidden):
                self.messages += 1
                self.hidden += hidden
                self.types[message["type"]] += 1
            case Problem():
                self.problem_count += 1
                if self.problem_count <= NAMED_PROBLEMS:
                    self.problems.append(record)

    def as_json(self) -> Json:
        """Returns it for programs."""
        return {
            "sessions": self.sessions,
            "messages": self.messages,
            "hidden": self.hidden,
            "types": dict(sorted(self.types.items())),
            "problem_count": self.problem_count,
            "problems": [problem.as_json() for problem in self.problems],
        }


def write(records: Iterable[Record], file: BinaryIO | None) -> Summary:
    """Writes an archive and returns what it holds. Uses memory for one message.

    Args:
        records: In their order; what they raise goes through, and the archive has no end then.
        file: Where to; None to count only.
    """
    summary, messages = Summary(), 0

    def line(**value: object) -> None:
        if file is not None:
            file.write(json_text(value).encode() + b"\n")

    def end_session() -> None:
        if summary.sessions:
            line(kind="session_end", files=0, turns=0, messages=messages)

    line(kind="archive", format="turnwire", version=VERSION, files=True)
    for record in records:
        match record:
            case SessionRecord(session):
                end_session()
                messages = 0
                line(kind="session", session=session)
            case MessageRecord(message, hidden):
                messages += 1
                line(kind="message", message=message, **({"hidden": True} if hidden else {}))
        summary.count(record)
    end_session()
    line(kind="archive_end", sessions=summary.sessions)
    return summary


def message(
    message_id: str, session_id: str, type_: str, at: datetime, contents: Iterable[Json], **more: object
) -> Json:
    """Returns a message that is complete.

    Args:
        message_id: Its id.
        session_id: That of its session.
        type_: user, assistant, system, host or tool_result.
        at: When it was said.
        contents: Of its parts, each with `type`; `provider_state` in one becomes that of its part.
        **more: Further values; those that are None or "" are left out.
    """
    parts = []
    for index, given in enumerate(contents):
        content = dict(given)
        state = content.pop("provider_state", None)
        part = {"part_id": stable_id("part", "prt", message_id, index), "index": index, "content": content}
        parts.append({**part, "provider_state": state} if state else part)
    return {
        "message_id": message_id,
        "session_id": session_id,
        "type": type_,
        "status": "complete",
        "created_at": rfc3339(at),
        "updated_at": rfc3339(at),
        "parts": parts,
        **{name: value for name, value in more.items() if value is not None and value != ""},
    }


def stable_id(system: str, prefix: str, *parts: object) -> str:
    """Returns the id of what is said by some JSON values of a system, the same each time."""
    digest = hashlib.blake2b(json_text([system, prefix, *parts]).encode(), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"


def rfc3339(at: datetime) -> str:
    """Returns an aware time as an archive has it."""
    return at.isoformat()


def json_text(value: object) -> str:
    """Returns JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def valid_text(value: str) -> str:
    """Returns text that can be stored: what is no valid text in it becomes U+FFFD."""
    return value if is_valid(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_valid(text: str) -> bool:
    """Returns whether a text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
