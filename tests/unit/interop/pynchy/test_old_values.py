"""Values of SQLite as JSON and back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.pynchy.old_values import MAX_KEPT_CHARS, Around, as_json, from_json, old_row, within_bound

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, 0, -(2**63), 1.0, float("-inf"), "", "日本", "\udc80", b"", b"\xff"])
def test_values_come_back(value: Any) -> None:
    """With their types, by way of JSON text."""
    found = from_json(json.loads(json.dumps(as_json(value), allow_nan=False)))
    assert (found, type(found)) == (value, type(value))


def test_text_comes_back_into_its_decoration() -> None:
    """Which is kept without the text."""
    assert from_json(as_json(Around("[host] ", "!")), "x") == "[host] x!"


def test_what_is_too_long_together_is_left_out() -> None:
    """By name, the rest is kept."""
    assert within_bound({"a": "x" * MAX_KEPT_CHARS, "b": 1}) == ({"b": 1}, ["a"])


def test_other_messages_are_of_no_row() -> None:
    """They keep nothing of one."""
    session = Session(session_id="s", created_at=AT, updated_at=AT)
    message = Message(
        message_id="m",
        session_id="s",
        type=MessageType.USER,
        status=MessageStatus.COMPLETE,
        created_at=AT,
        updated_at=AT,
    )
    with pytest.raises(ValueError, match="message m was made of no row"):
        old_row(session, message)
