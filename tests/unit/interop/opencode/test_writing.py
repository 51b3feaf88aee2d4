"""Records as OpenCode's exports, and back."""

import json
from typing import Any

import pytest

from tests.support.fakes.domain_values import make_message, make_part, make_session
from tests.support.fakes.foreign_archives import OPENAI, OPENCODE, as_json, as_lines, records, sessions_of, written
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, SessionEnd
from turnwire.domain.conversation.messages import (
    Content,
    Failure,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)

BEGIN = ArchivedSession(make_session("s"))


def _message(kind: MessageType, *contents: Content | Part, **fields: object) -> Message:
    return make_message("m", *contents, type=kind, session_id="s", **fields)


def _written(*messages: Message) -> Any:
    return json.loads(written("opencode", [BEGIN, *map(ArchivedMessage, messages), SessionEnd(len(messages))]))


def test_what_is_written_reads_the_same() -> None:
    """Every record, files and what was taken back included."""
    first = records("opencode", as_json(OPENCODE))
    assert records("opencode", written("opencode", first)) == first


def test_one_session_is_one_document() -> None:
    """With all that OpenCode asks for, and ids of its form."""
    value = _written(
        _message(MessageType.USER, make_part(0, Text("x"), part_id="p0")), _message(MessageType.ASSISTANT, Text("y"))
    )
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
    contents, failure = (ProviderContent("x"), Refusal("no")), Failure("PROVIDER_ERROR", "down")
    failed = _message(MessageType.ASSISTANT, *contents, failure=failure)
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
        "time": {"start": 1_767_323_045_678, "end": 1_767_323_045_678},
    }


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": "\\ud800"}', '{"a": ' + "9" * 5000 + "}", '{"a":' * 90 + "1" + "}" * 90, "[1]", "{"]
)
def test_arguments_that_few_can_read_are_text(text: str) -> None:
    """A model may write anything; the archive is JSON that its reader takes."""
    use = ToolUse(name="run", call_id="c", input_json=text, status=ToolStatus.SUCCESS, output="", metadata_json=text)
    archive = written("opencode", [BEGIN, ArchivedMessage(_message(MessageType.ASSISTANT, use)), SessionEnd(1)])
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
