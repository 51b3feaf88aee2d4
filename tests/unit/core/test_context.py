"""What a model is sent, and what never reaches it."""

import pytest

from tests.support.domain_values import make_answer, make_message, make_part, make_turn
from turnwire.core.context import assemble, file_hashes
from turnwire.domain.messages import (
    Content,
    File,
    Message,
    MessageStatus,
    MessageType,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.sessions import GenerationOptions, ToolDefinition
from turnwire.ports.provider import ProviderRequest

FILE = File(sha256="ab", size_bytes=1, mime="text/plain")


def _sent(*history: Message) -> tuple[Message, ...]:
    return assemble(history, make_turn(), "").request.messages


def test_the_request_holds_the_turns_settings() -> None:
    """Model, system prompt, tools and options are those of the turn."""
    tools = (ToolDefinition("read", "", ""),)
    options = GenerationOptions(temperature=0.5)
    user = make_message("msg_1", "hi")
    assert assemble([user], make_turn(tools=tools, options=options), "be brief").request == ProviderRequest(
        model_id="echo", system="be brief", messages=(user,), tools=tools, options=options
    )


def test_a_conversation_in_order_is_sent_as_it_is() -> None:
    """User, assistant and system messages and settled calls pass unchanged."""
    call = ToolUse(name="read", call_id="c", status=ToolStatus.SUCCESS, output="1")
    history = (
        make_message("msg_1", "hi", FILE),
        make_answer("msg_2", "I look", call),
        make_message("msg_3", "note", type=MessageType.SYSTEM),
        make_message("msg_4", ToolResult(call_id="x", output="y"), type=MessageType.TOOL_RESULT),
    )
    assert _sent(*history) == history


def test_host_messages_never_pass() -> None:
    """Whatever their status."""
    assert _sent(*[make_message("msg_1", "h", type=MessageType.HOST, status=s) for s in MessageStatus]) == ()


@pytest.mark.parametrize("status", [MessageStatus.QUEUED, MessageStatus.STREAMING])
def test_what_is_not_part_of_the_conversation_yet_is_left_out(status: MessageStatus) -> None:
    """Waiting messages and the answer that streams."""
    assert _sent(make_message("msg_1", "x", status=status)) == ()


def test_folded_results_go_with_their_call() -> None:
    """A tool result that stands with its call is not sent a second time."""
    call = ToolUse(name="read", call_id="c", status=ToolStatus.SUCCESS, output="1")
    answer = make_answer("msg_1", call)
    folded = make_message("msg_2", ToolResult(call_id="c", output="1"), type=MessageType.TOOL_RESULT, parent_id="msg_1")
    assert _sent(answer, folded) == (answer,)


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        (Text("a"), True),
        (Text(""), False),
        (Text(" \n\t "), False),
        (Refusal("no"), True),
        (Refusal(" "), False),
        (FILE, True),
        (ToolUse(name="t", status=ToolStatus.SUCCESS), True),
        (ToolUse(name="t", status=ToolStatus.ERROR), True),
        (ToolUse(name="t", status=ToolStatus.CANCELLED), False),
        (ToolUse(name="t", status=ToolStatus.PENDING), False),
        (ToolUse(name="t", status=ToolStatus.RUNNING), False),
        (ToolResult(call_id="c", output=""), True),
    ],
)
@pytest.mark.parametrize("status", [MessageStatus.COMPLETE, MessageStatus.INTERRUPTED, MessageStatus.FAILED])
def test_parts_that_no_provider_takes_are_left_out(content: Content, sent: bool, status: MessageStatus) -> None:
    """Empty text and calls without result; a message of which nothing is left is left out itself."""
    answer = make_answer("msg_1", content, status=status)
    assert _sent(answer) == ((answer,) if sent else ())


@pytest.mark.parametrize("content", [Reasoning("hm"), ProviderContent("web_search_call")])
@pytest.mark.parametrize(
    ("status", "part_status", "state", "sent"),
    [
        (MessageStatus.COMPLETE, PartStatus.COMPLETE, "{}", True),
        (MessageStatus.COMPLETE, PartStatus.COMPLETE, None, False),
        (MessageStatus.COMPLETE, PartStatus.INTERRUPTED, "{}", False),
        (MessageStatus.INTERRUPTED, PartStatus.COMPLETE, "{}", False),
        (MessageStatus.FAILED, PartStatus.COMPLETE, "{}", False),
    ],
)
def test_reasoning_goes_back_only_sealed_and_whole(
    content: Content, status: MessageStatus, part_status: PartStatus, state: str | None, sent: bool
) -> None:
    """Without its provider's seal, or after an interruption, the provider would refuse it."""
    part = make_part(1, content, status=part_status, provider_state=state)
    text = make_part(0, Text("t"))
    answer = make_answer("msg_1", text, part, status=status)
    kept: tuple[Part, ...] = (text, part) if sent else (text,)
    assert [message.parts for message in _sent(answer)] == [kept]


def test_file_hashes_are_those_that_are_sent() -> None:
    """Each once; those of messages that are left out do not count."""
    other = File(sha256="cd", size_bytes=1, mime="text/plain")
    history = [
        make_message("msg_1", FILE, FILE),
        make_message("msg_2", FILE),
        make_message("msg_3", other, type=MessageType.HOST),
    ]
    assert file_hashes(assemble(history, make_turn(), "").request) == frozenset({"ab"})
