"""Records as OpenCode's exports, and back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.fakes.foreign_archives import OPENAI, OPENCODE, as_json, as_lines, records, sessions_of, written
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, SessionEnd
from turnwire.domain.conversation.messages import (
    Content,
    Failure,
    Message,
    MessageStatus,
    MessageType,
    Part,
    ProviderContent,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session

AT = datetime(2026, 1, 1, tzinfo=UTC)


def _message(kind: MessageType, *contents: Content) -> Message:
    return Message(
        message_id="m",
        session_id="s",
        type=kind,
        status=MessageStatus.COMPLETE,
        created_at=AT,
        updated_at=AT,
        parts=tuple(Part(part_id=f"p{index}", index=index, content=content) for index, content in enumerate(contents)),
    )


def _written(*messages: Message) -> Any:
    begin = ArchivedSession(Session(session_id="s", created_at=AT, updated_at=AT))
    return json.loads(written("opencode", [begin, *map(ArchivedMessage, messages), SessionEnd(len(messages))]))


def test_what_is_written_reads_the_same() -> None:
    """Every record, files and what was taken back included."""
    first = records("opencode", as_json(OPENCODE))
    assert records("opencode", written("opencode", first)) == first


def test_one_session_is_one_document() -> None:
    """With all that OpenCode asks for, and ids of its form."""
    value = _written(_message(MessageType.USER, Text("x")), _message(MessageType.ASSISTANT, Text("y")))
    assert value["info"]["id"] == "ses_s"
    assert value["info"].keys() >= {"id", "slug", "projectID", "directory", "title", "version", "time"}
    question, answer = value["messages"]
    assert question["info"].keys() >= {"id", "sessionID", "role", "time", "agent", "model"}
    assert answer["info"].keys() >= {
        "id", "sessionID", "role", "time", "parentID", "modelID", "providerID", "mode", "agent", "path", "cost",
        "tokens",
    }  # fmt: skip
    assert question["info"]["id"] == answer["info"]["parentID"] == "msg_m"
    assert question["parts"] == [
        {"id": "prt_p0", "sessionID": "ses_s", "messageID": "msg_m", "type": "text", "text": "x"}
    ]


def test_what_opencode_cannot_carry_is_left_out() -> None:
    """Other types of messages and what only a provider understands; a refusal is text, an error has its words."""
    failed = replace(
        _message(MessageType.ASSISTANT, ProviderContent("x"), Refusal("no")), failure=Failure("PROVIDER_ERROR", "down")
    )
    value = _written(_message(MessageType.HOST, Text("a")), _message(MessageType.SYSTEM, Text("b")), failed)
    [answer] = value["messages"]
    assert [part["text"] for part in answer["parts"]] == ["no"]
    assert answer["info"]["error"] == {"name": "UnknownError", "data": {"message": "down"}}


def test_arguments_are_objects() -> None:
    """Others are the argument `input`."""
    use = ToolUse(name="run", call_id="c", input_json="ls", status=ToolStatus.CANCELLED, error="late")
    [answer] = _written(_message(MessageType.ASSISTANT, use))["messages"]
    assert answer["parts"][0]["state"] == {
        "status": "error",
        "input": {"input": "ls"},
        "error": "late",
        "metadata": {},
        "time": {"start": 1_767_225_600_000, "end": 1_767_225_600_000},
    }


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": "\\ud800"}', '{"a": ' + "9" * 5000 + "}", '{"a":' * 90 + "1" + "}" * 90, "[1]", "{"]
)
def test_arguments_that_few_can_read_are_text(text: str) -> None:
    """A model may write anything; the archive is JSON that its reader takes."""
    use = ToolUse(name="run", call_id="c", input_json=text, status=ToolStatus.SUCCESS, output="", metadata_json=text)
    begin = ArchivedSession(Session(session_id="s", created_at=AT, updated_at=AT))
    archive = written("opencode", [begin, ArchivedMessage(_message(MessageType.ASSISTANT, use)), SessionEnd(1)])
    [(_, [message])] = sessions_of(records("opencode", archive))
    [(_, call)] = message.tool_calls()
    assert json.loads(call.input_json) == {"input": text}
    assert call.metadata_json == ""


def test_conversations_of_others_come_through() -> None:
    """A conversation of OpenAI's form is written and read with its texts, calls and files."""
    given = records("openai", as_lines(OPENAI))
    [(session, messages)] = sessions_of(records("opencode", written("opencode", given)))
    [(_, before)] = sessions_of(given)
    kept = [message for message in before if message.type.value in ("user", "assistant")]
    assert session.title == "Weather"
    assert [message.message_id for message in messages] == [f"msg_{message.message_id}" for message in kept]
    assert [message.files() for message in messages] == [message.files() for message in kept]
    assert [call.output for message in messages for _, call in message.tool_calls()] == ["a sun", None]
