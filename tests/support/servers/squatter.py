"""Another tenant that takes ids in advance, and the archives whose ids it takes."""

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.fakes.domain_values import NOW, make_answer, make_message, make_part, make_session, make_turn
from tests.support.fakes.foreign_archives import EXAMPLES, as_json, as_lines
from tests.support.oracles.archives import golden_records
from tests.support.oracles.golden_history import HISTORY
from tests.support.servers.moving import lines, moving
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ArchivedTurn, Record, SessionEnd
from turnwire.domain.conversation.messages import Text, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS
from turnwire.ports.moving.archives import ArchiveFormat
from turnwire.storage.rows import parts_of

MARK = "squatter"
"""A word that only the attacker's messages have."""

ROWS = as_lines(
    {
        "id": "1",
        "messages": [
            {"role": "user", "content": "How deep?"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "three"},
        ],
    },
    {"id": "2", "messages": [{"role": "user", "content": "And here?"}]},
)
"""Two conversations of another system."""

ARCHIVES = {
    "turnwire": lines([*golden_records("a", HISTORY[:9]), *golden_records("b", HISTORY[9:15])]),
    **{name: as_json(example) for name, example in EXAMPLES.items()},
}

KINDS = ("sessions", "messages", "turns", "calls", "parts")
COLUMNS = {
    "sessions": "SELECT session_id FROM sessions ORDER BY id",
    "messages": "SELECT message_id FROM messages ORDER BY id",
    "turns": "SELECT turn_id FROM turns ORDER BY id",
    "calls": "SELECT tool_call_id FROM tool_calls ORDER BY message, tool_call_id",
}

Ids = dict[str, list[str]]


def formats() -> dict[str, ArchiveFormat]:
    """Returns all formats of other systems."""
    return {name: ArchiveFormat(make(lambda: NOW, ArchiveLimits())) for name, make in READERS.items()}


def opened(folder: Path) -> Any:
    """Opens a store whose secret key is always the same, so that its ids are."""
    return moving(folder, **formats())


async def prepared(folder: Path) -> None:
    """Makes a database with that key."""
    folder.mkdir()
    async with opened(folder):
        pass
    with sqlite3.connect(folder / "turnwire.db") as db:
        db.execute("UPDATE log_state SET token_key = ?", (b"k" * 32,))


def ids_in(path: Path) -> Ids:
    """Returns all ids of a database, by kind; those of the attacker are not among the ones that he takes."""
    with sqlite3.connect(path) as db:
        found = {kind: [one for (one,) in db.execute(query)] for kind, query in COLUMNS.items()}
        parts = (
            part for (stored,) in db.execute("SELECT parts FROM messages ORDER BY id") for part in parts_of(stored)
        )
        return {**found, "parts": [part.part_id for part in parts if not isinstance(part.content, ToolUse)]}


def squatting(ids: Ids) -> Iterator[Record]:
    """Yields sessions that have these ids and, for the rest, new ones."""
    fresh = (f"{number:032x}" for number in itertools.count(1))
    for session_id in ids.get("sessions", []):
        yield ArchivedSession(make_session(session_id, title=MARK))
        yield SessionEnd(0)
    if not any(ids.get(kind) for kind in KINDS[1:]):
        return
    session_id, first = f"ses_{next(fresh)}", f"msg_{next(fresh)}"
    yield ArchivedSession(make_session(session_id, title=MARK))
    for turn_id in ids.get("turns", []):
        yield ArchivedTurn(make_turn(turn_id, session_id, user_message_id=first, status=TurnStatus.ENDED, ended_at=NOW))
    for message_id in (first, *ids.get("messages", [])):
        part = make_part(0, Text(MARK), part_id=f"prt_{next(fresh)}")
        yield ArchivedMessage(make_message(message_id, part, session_id=session_id))
    for part_id in ids.get("calls", []):
        call = ToolUse(name="look", call_id="c", status=ToolStatus.SUCCESS, output=MARK, input_json="{}")
        part = make_part(0, call, part_id=part_id)
        yield ArchivedMessage(
            make_answer(f"msg_{next(fresh)}", part, session_id=session_id, turn_id="", answers_message_id="")
        )
    for part_id in ids.get("parts", []):
        part = make_part(0, Text(MARK), part_id=part_id)
        yield ArchivedMessage(make_message(f"msg_{next(fresh)}", part, session_id=session_id))
    yield SessionEnd(1 + sum(len(ids.get(kind, [])) for kind in ("messages", "calls", "parts")))
