"""Conversations of ikigai as messages of a session, and what a model gets of them."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.models.provider_requests import anthropic, chat, responses
from turnwire.domain.conversation.messages import Message, MessageType, ToolStatus, ToolUse
from turnwire.interop.ikigai import (
    Draft,
    MadeBy,
    assistant_message,
    conversation,
    redacted_thinking,
    text,
    thinking,
    tool_call,
    tool_message,
    tool_result,
    user_message,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = (
    user_message(text("what is there?")),
    assistant_message(thinking("hm", "sig"), redacted_thinking("EmwK"), tool_call("c", "bash", '{"cmd": "ls"}')),
    tool_message(tool_result("c", "a.py")),
    assistant_message(text("a.py is there.")),
    user_message(text("thanks")),
)


def _stored(*drafts: Draft, made_by: MadeBy | None = None) -> list[Message]:
    numbers = itertools.count()
    return conversation(drafts, "ses_1", lambda prefix: f"{prefix}_{next(numbers)}", AT, made_by)


def _contents(body: dict[str, Any]) -> list[Any]:
    return [block for message in body["messages"] for block in message["content"]]


def test_order_and_results_are_kept() -> None:
    """The result is in its call, and each answer names its question."""
    messages = _stored(*ASKED)
    assert [message.type.value for message in messages] == ["user", "assistant", "assistant", "user"]
    question, called, answered, _ = messages
    assert (called.answers_message_id, answered.answers_message_id) == (question.message_id, question.message_id)
    call = called.parts[2].content
    assert isinstance(call, ToolUse)
    assert (call.status, call.output, call.error) == (ToolStatus.SUCCESS, "a.py", None)


def test_failed_results_are_errors() -> None:
    """Of the call."""
    [message] = _stored(assistant_message(tool_call("c", "bash", "{}")), tool_message(tool_result("c", "no", True)))
    call = message.parts[0].content
    assert isinstance(call, ToolUse)
    assert (call.status, call.output, call.error) == (ToolStatus.ERROR, None, "no")


def test_a_result_without_its_call_stays() -> None:
    """So does a second result of one call."""
    result = tool_message(tool_result("c", "1"))
    assert [m.type for m in _stored(result)] == [MessageType.TOOL_RESULT]
    assert [m.type for m in _stored(assistant_message(tool_call("c", "bash", "{}")), result, result)] == [
        MessageType.ASSISTANT,
        MessageType.TOOL_RESULT,
    ]


def test_signatures_travel_to_the_model_that_made_them() -> None:
    """Thinking, redacted thinking and the call go back block by block."""
    body = anthropic(*_stored(*ASKED, made_by=MadeBy("p", "m", "anthropic")))
    blocks = _contents(body)
    assert {"type": "thinking", "thinking": "hm", "signature": "sig"} in blocks
    assert {"type": "redacted_thinking", "data": "EmwK"} in blocks


@pytest.mark.parametrize("made_by", [None, MadeBy("p", "another", "anthropic"), MadeBy("q", "m", "anthropic")])
def test_signatures_go_to_no_other_model(made_by: MadeBy | None) -> None:
    """They stay stored; the words and the call are sent."""
    messages = _stored(*ASKED, made_by=made_by)
    assert '"signature":"sig"' in (messages[1].parts[0].provider_state or "")
    kinds = [block["type"] for block in _contents(anthropic(*messages))]
    assert not {"thinking", "redacted_thinking"} & set(kinds)
    assert "tool_use" in kinds


def test_every_provider_takes_the_conversation() -> None:
    """One storage: the same messages, in the form of each API."""
    messages = _stored(*ASKED)
    for body in (anthropic(*messages), chat(*messages), responses(*messages)):
        written = str(body)
        assert all(words in written for words in ("what is there?", "ls", "a.py is there.", "thanks"))


def test_metadata_is_stored() -> None:
    """Of each message."""
    [message] = _stored(user_message(text("a"), provider_metadata={"id": "r"}))
    assert message.metadata_json == '{"provider_metadata":{"id":"r"}}'


def test_ten_thousand_messages_keep_their_order() -> None:
    """And none is lost."""
    messages = _stored(*(user_message(text(str(number))) for number in range(10_000)))
    assert [message.parts[0].content.text for message in messages] == list(map(str, range(10_000)))  # type: ignore[union-attr]
