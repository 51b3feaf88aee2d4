"""The fold vectors of clients/vectors/: every kind of event is in some, and they have what is hard.

`make check-vectors` compares the files with what the server says today; the tests of each client fold them.
"""

import itertools
import re
from pathlib import Path

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from tests.support.vectors.files import Vector, read, vectors
from tests.support.vectors.large import CONTENT_BYTES, EVENTS, large_stream
from turnwire_client import Conversation

ROOT = Path(__file__).parents[2]
EVENTS_PAGE = (ROOT / "docs/reference/events.md").read_text()


def test_every_kind_of_the_contract_is_in_a_vector() -> None:
    """Each row of the table in docs/reference/events.md, and events of kinds that nobody knows yet."""
    table = EVENTS_PAGE.split("| event | fields | what the client does |")[1].split("\n\n")[0]
    rows = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`(\w+)`", line.split("|")[1] if "|" in line else "")
    }
    kinds = {event.WhichOneof("kind") for path in vectors() for batch in read(path).batches for event in batch.events}
    assert rows == {field.name for field in SessionEvent.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert kinds == rows | {None}


def test_the_vectors_cover_what_is_hard() -> None:
    """Deltas that overlap, repeat and have gaps, inside of characters too; brief events; starts with a list."""
    deltas = {path.stem: _deltas(read(path)) for path in vectors()}
    offsets = [(delta.offset, delta.end_offset) for delta in deltas["overlapping-deltas"]]
    assert any(begin < before[1] < end for before, (begin, end) in itertools.pairwise(offsets))
    assert any(end <= before[1] for before, (_, end) in itertools.pairwise(offsets))
    gaps = [(delta.offset, delta.end_offset) for delta in deltas["missing-deltas"]]
    assert any(begin > before[1] for before, (begin, _) in itertools.pairwise(gaps))
    assert deltas["quick-answer"] == []
    assert any(len(delta.text) < len(delta.text.encode()) for delta in deltas["overlapping-deltas"])
    assert sum(read(path).start is not None for path in vectors()) >= 5


def _deltas(vector: Vector) -> list:  # type: ignore[type-arg]
    return [event.part_delta for batch in vector.batches for event in batch.events if event.HasField("part_delta")]


@pytest.mark.slow
def test_the_large_stream_is_as_described() -> None:
    """Its size and a fold's first and last part are those in clients/vectors/README.md."""
    readme = (ROOT / "clients/vectors/README.md").read_text()
    assert f"**{EVENTS:,} events**" in readme
    assert f"{CONTENT_BYTES:,} bytes" in readme
    batches = large_stream()
    assert sum(len(batch.events) for batch in batches) == EVENTS
    assert {len(batch.events) for batch in batches} == {100}
    held = Conversation("ses_1")
    for batch in (*batches[:3], *batches[-2:]):
        for event in batch.events:
            held.apply(event)
    [message] = held.messages
    [part] = message.parts
    assert (part.content_bytes, len(part.text.text)) == (CONTENT_BYTES, CONTENT_BYTES)
    assert part.text.text.endswith("delta 0099995 ")
