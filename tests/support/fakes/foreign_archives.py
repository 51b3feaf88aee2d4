"""Archives of other systems, made for the tests, and what their readers give."""

import copy
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.archive.bounds import Bounds
from turnwire.interop.archives import READERS, WRITERS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""When archives are read."""
SMALL = Bounds(
    conversation_bytes=100_000, values=2_000, depth=20, messages=50, entries=20, unpacked_bytes=200_000, ratio=20,
    file_bytes=1_000, problems=5,
)  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\nfake"
PNG_URI = "data:image/png;base64,iVBORw0KGgpmYWtl"


def records(
    name: str, content: bytes, bounds: Bounds | None = None, options: Mapping[str, str] | None = None
) -> list[Record | ImportProblem]:
    """Returns what the reader of a format makes of an archive."""
    reader = READERS[name](lambda: NOW, bounds or Bounds())
    return list(reader.read(io.BytesIO(content), options or {}))


def sessions_of(found: Iterable[Record | ImportProblem]) -> list[tuple[Session, list[Message]]]:
    """Returns each session with its messages, and checks that they come in order and are counted."""
    sessions: list[tuple[Session, list[Message]]] = []
    for record in found:
        match record:
            case ArchivedSession(session):
                sessions.append((session, []))
            case ArchivedMessage(message):
                sessions[-1][1].append(message)
            case SessionEnd(messages):
                assert messages == len(sessions[-1][1])
    return sessions


def problems_of(found: Iterable[Record | ImportProblem]) -> list[tuple[str, str]]:
    """Returns reason and place of each problem."""
    return [(problem.reason, problem.field) for problem in found if isinstance(problem, ImportProblem)]


def written(name: str, given: Iterable[Record | ImportProblem]) -> bytes:
    """Returns the archive that the writer of a format makes of records."""
    writer = WRITERS[name]()
    parts = [writer.write(record) for record in given if not isinstance(record, ImportProblem)]
    return b"".join(parts) + writer.end()


def as_json(value: Any) -> bytes:
    """Returns JSON text."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_lines(*values: Any) -> bytes:
    """Returns JSON Lines."""
    return b"".join(as_json(value) + b"\n" for value in values)


def mutations(value: Any) -> st.SearchStrategy[Any]:
    """Draws the value with one to three places changed: another type, another number, nothing."""
    return st.lists(st.tuples(st.sampled_from(sorted(_paths(value), key=repr)), _ODD), min_size=1, max_size=3).map(
        lambda changes: _changed(value, changes)
    )


_ODD = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**70, 1e308, "", "x", "\ud800", "message", [], {}, [None], {"x": {}}, [[]], "data:,", ...]
)
"""What stands in place of a value; ... takes the key or item away."""


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _changed(value: Any, changes: Iterable[tuple[tuple[Any, ...], Any]]) -> Any:
    whole = copy.deepcopy(value)
    for path, odd in changes:
        parent = whole
        try:
            for key in path[:-1]:
                parent = parent[key]
            if odd is ...:
                del parent[path[-1]]
            else:
                parent[path[-1]] = odd
        except (LookupError, TypeError):
            continue  # an earlier change took the place away
    return whole


OPENAI: Any = {
    "id": "conv-1",
    "title": "Weather",
    "created": 1_700_000_000.5,
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "What is that? 天気"},
                {"type": "image_url", "image_url": {"url": PNG_URI}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "sun"}],
        },
        {"role": "assistant", "content": "The sun.", "refusal": "No more."},
        {"role": "tool", "tool_call_id": "unknown", "content": "lost"},
    ],
}
"""A conversation of OpenAI's form with everything that the form can carry."""


EXAMPLES: dict[str, Any] = {"openai": OPENAI}
"""A conversation of each format, as JSON."""
