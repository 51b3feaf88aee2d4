"""Records as OpenAI's form, and back."""

import json

from tests.support.fakes.domain_values import NOW, make_message, make_session
from tests.support.fakes.foreign_archives import OPENAI, as_json, as_lines, records, written
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, Record, SessionEnd
from turnwire.domain.conversation.messages import Compaction, Content, MessageType, Reasoning, Text, ToolStatus, ToolUse


def _archived(kind: MessageType, *contents: Content, hidden: bool = False, **fields: object) -> ArchivedMessage:
    return ArchivedMessage(make_message("m", *contents, type=kind, session_id="s", **fields), hidden=hidden)


def _lines(*middle: Record) -> list[dict[str, object]]:
    begin = ArchivedSession(make_session("s"))
    text = written("openai", [begin, *middle, SessionEnd(len(middle))])
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_written_reads_the_same() -> None:
    """All that the form can carry comes back, files included, and is written in the same bytes again."""
    first = records("openai", as_lines(OPENAI, {"messages": []}))
    text = written("openai", first)
    again = records("openai", text)
    open_call = [record for record in again if isinstance(record, ArchivedMessage)][2].message.parts[1]
    assert (open_call.content.status, open_call.content.output) == (
        ToolStatus.SUCCESS, "The archive has no result of this call.",
    )  # fmt: skip
    assert written("openai", again) == text
    assert len(first) == len(again)
    differing = [(a, b) for a, b in zip(first, again, strict=True) if a != b]
    assert [type(a).__name__ for a, _ in differing] == ["ArchivedMessage"]


def test_nothing_else_differs() -> None:
    """A failed call is the only thing that reads in another way: the form has no errors."""
    settled = {**OPENAI, "messages": [message for message in OPENAI["messages"] if "tool_calls" not in message]}
    first = records("openai", as_lines(settled))
    assert records("openai", written("openai", first)) == first


def test_what_the_form_cannot_carry_is_left_out() -> None:
    """Reasoning, host messages, what was taken back, summaries."""
    summary = Compaction(through_message_id="m", message_count=1, tokens_before=2, tokens_after=1)
    [line] = _lines(
        _archived(MessageType.HOST, Text("joined")),
        _archived(MessageType.USER, Text("back"), hidden=True),
        _archived(MessageType.SYSTEM, Text("summary"), compaction=summary),
        _archived(MessageType.ASSISTANT, Reasoning("hm")),
        _archived(MessageType.ASSISTANT, Reasoning("hm"), Text("a"), Text("b")),
    )
    assert line == {
        "id": "s",
        "created": NOW.timestamp(),
        "messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    }


def test_calls_are_followed_by_their_results() -> None:
    """In the order of the calls; an error is the output."""
    failed = ToolUse(name="look", call_id="c", input_json="{}", status=ToolStatus.ERROR, error="no")
    [line] = _lines(_archived(MessageType.ASSISTANT, failed))
    assert line["messages"] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "no"},
    ]


def test_an_empty_archive_is_empty() -> None:
    """No session, no line; and a session is a line of its own."""
    assert written("openai", []) == b""
    assert written("openai", records("openai", as_json([OPENAI, OPENAI]))).count(b"\n") == 2
