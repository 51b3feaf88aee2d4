"""A conversation of ikigai that grows by its rows. What rows become is tested with whole archives."""

import itertools
import time
from datetime import UTC, datetime

import pytest

from turnwire.interop.ikigai.replay import MAX_PROBLEMS, Replay, StoredRow

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_there_is_no_session_without_a_row() -> None:
    """Nothing says when it began."""
    with pytest.raises(ValueError, match="at least one row"):
        Replay("k").session()


def test_problems_have_a_bound() -> None:
    """The last one says that there are more."""
    replay = Replay("k")
    for _ in range(MAX_PROBLEMS + 5):
        replay.add(StoredRow(conversation="k", row_id="", line=1, at=AT, values={"kind": "rewind"}))
    assert [problem.reason for problem in replay.problems[-2:]] == ["MARK_UNKNOWN", "MORE_PROBLEMS"]
    assert len(replay.problems) == MAX_PROBLEMS + 1


def test_many_marks_and_rewinds_cost_what_they_bring() -> None:
    """Each message is taken back once, however often rewinds go back to one mark."""
    replay, numbers = Replay("k"), itertools.count()

    def add(kind: str, **values: str) -> None:
        replay.add(
            StoredRow(conversation="k", row_id=str(next(numbers)), line=1, at=AT, values={"kind": kind, **values})
        )

    add("mark")
    began = time.process_time()
    for _ in range(20_000):
        add("user", content="a")
        add("mark")
        add("rewind", data_json='{"target_message_id": 0}')
    assert time.process_time() - began < 5
    assert all(hidden for _, hidden in replay.messages())
