"""Reader of documents in OpenAI's form."""

import hashlib

import pytest

from tests.support.fakes.foreign_archives import (
    NOW,
    OPENAI,
    PNG,
    PNG_URI,
    SMALL,
    as_json,
    as_lines,
    problems_of,
    records,
    sessions_of,
)
from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageType,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
)
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest


def _asked(*contents: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def test_a_conversation_comes_with_everything() -> None:
    """Session, roles, texts, calls with their results, refusals, names."""
    found = records("openai", as_lines(OPENAI))
    [(session, messages)] = sessions_of(found)
    assert (session.session_id, session.title) == ("conv-1", "Weather")
    assert session.created_at.timestamp() == 1_700_000_000.5
    assert [message.type.value for message in messages] == ["system", "user", "assistant", "assistant", "tool_result"]
    system, user, called, answered, lost = messages
    assert [part.content for part in system.parts] == [Text("Be brief.")]
    assert (user.sender_name, user.parts[0].content) == ("ann", Text("What is that? 天気"))
    [looked, open_call] = [call for _, call in called.tool_calls()]
    assert (looked.call_id, looked.input_json, looked.output) == ("c1", '{"at": 1}', "a sun")
    assert (looked.status, called.finish_reason) == (ToolStatus.SUCCESS, FinishReason.TOOL_USE)
    assert (open_call.status, open_call.error) == (ToolStatus.ERROR, "The archive has no result of this call.")
    assert [part.content for part in answered.parts] == [Text("The sun."), Refusal("No more.")]
    assert answered.answers_message_id == user.message_id
    assert [part.content for part in lost.parts] == [ToolResult(call_id="unknown", output="lost")]
    assert problems_of(found) == []


def test_files_come_before_their_message() -> None:
    """Once in each session, with type and name."""
    twice = _asked([{"type": "image_url", "image_url": {"url": PNG_URI}}] * 2)
    found = records("openai", as_lines(twice, OPENAI))
    kinds = [type(record).__name__ for record in found]
    assert kinds[:4] == ["ArchivedSession", "ArchivedFile", "ArchivedMessage", "SessionEnd"]
    assert kinds[4:9] == ["ArchivedSession", "ArchivedMessage", *["ArchivedFile"] * 3]
    assert found[1] == ArchivedFile(hashlib.sha256(PNG).hexdigest(), PNG)
    [image, audio, text] = sessions_of(found)[1][1][1].files()
    assert (image.mime, image.size_bytes, audio.mime) == ("image/png", len(PNG), "audio/wav")
    assert (text.mime, text.filename, text.size_bytes) == ("text/plain", "a.txt", 2)


@pytest.mark.parametrize(
    "content",
    [
        as_json(OPENAI),
        b"\xef\xbb\xbf\n" + as_lines(OPENAI),
        as_json([OPENAI]),
        as_json(OPENAI).replace(b'"id": "conv-1"', b'\n "id": "conv-1"'),
        as_lines(OPENAI)[:-1],
        as_lines(OPENAI) + b"\n  \r\n",
    ],
)
def test_all_forms_are_the_same_conversation(content: bytes) -> None:
    """One line, an array, many lines; with a byte order mark, without the last newline."""
    messages = [record for record in records("openai", content) if isinstance(record, ArchivedMessage)]
    assert messages == [record for record in records("openai", as_lines(OPENAI)) if isinstance(record, ArchivedMessage)]


def test_an_array_of_messages_is_one_conversation() -> None:
    """It is of now, because nothing says when it was; its id follows from the content."""
    content = as_json(OPENAI["messages"])
    [(session, messages)] = sessions_of(records("openai", content))
    assert (session.created_at, len(messages)) == (NOW, 5)
    assert sessions_of(records("openai", content))[0][0].session_id == session.session_id
    [(other, _)] = sessions_of(records("openai", as_json(_asked("other"))))
    assert other.session_id != session.session_id


def test_equal_conversations_are_two() -> None:
    """The second one has an id of its own."""
    first, second = sessions_of(records("openai", as_lines(_asked("a"), _asked("a"))))
    assert second[0].session_id != first[0].session_id


def test_older_calls_are_read() -> None:
    """`function_call` and the role "function", which have a name in place of an id."""
    old = {
        "messages": [
            {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "a sun"},
        ]
    }
    [(_, [message])] = sessions_of(records("openai", as_json(old)))
    assert message.type is MessageType.ASSISTANT
    [(_, call)] = message.tool_calls()
    assert (call.name, call.output) == ("look", "a sun")


def test_custom_calls_keep_their_text() -> None:
    """As an argument, because arguments are JSON here."""
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    [(_, [message])] = sessions_of(
        records("openai", as_json({"messages": [{"role": "assistant", "tool_calls": [call]}]}))
    )
    content = message.parts[0].content
    assert (content.name, content.input_json) == ("run", '{"input": "ls"}')


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "FILE_NOT_IN_ARCHIVE"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "FILE_NOT_IN_ARCHIVE"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "FILE_NOT_IN_ARCHIVE"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}, "FILE_MALFORMED"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}, "FILE_MALFORMED"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2000}}, "FILE_TOO_LARGE"),
        ({"type": "hologram", "hologram": 1}, "UNKNOWN_CONTENT"),
    ],
)
def test_what_cannot_be_carried_is_told(part: object, reason: str) -> None:
    """The rest of the message is there."""
    found = records("openai", as_json(_asked([{"type": "text", "text": "see"}, part])), SMALL)
    assert problems_of(found) == [(reason, "messages[0].content[1]")]
    [(_, [message])] = sessions_of(found)
    assert [part.content for part in message.parts] == [Text("see")]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty, or cut"),
        (b"  ", "is empty, or cut"),
        (b"[", "[0]: ends inside JSON: the archive is cut"),
        (b'{"messages": [', "ends inside JSON"),
        (b"7", "must be an array or an object"),
        (b"hello", "is not JSON"),
        (b"PK\x03\x04", "is not JSON"),
        (b"[1]", "[0]: must be an object, not a number"),
        (b'[{"role": "user"}, {"messages": []}]', "[1]: is not a message, unlike those before it"),
        (b"{}", "line 1: messages: is missing"),
        (b'{"messages": {}}', "line 1: messages: must be an array"),
        (as_lines(_asked("a")) + b"{", "line 2: ends inside JSON"),
        (as_lines(_asked("a")) + b"\n[]", "line 3: must be an object, not an array"),
        (as_lines(_asked("a"), _asked(7)), "line 2: messages[0].content: must be text or an array, not a number"),
        (as_json([_asked("a"), _asked(7)]), "[1].messages[0].content: must be text or an array"),
        (as_json({"messages": [{"role": "robot"}]}), "messages[0].role: must be one of system, developer"),
        (as_json({"messages": [{"content": "x"}]}), "messages[0].role: is missing"),
        (as_json({"messages": [], "created": 1e300}), "created: is not a moment"),
        (as_json({"messages": [], "created": True}), "created: must be a number, not a truth value"),
        (as_json({"messages": [], "id": "x" * 300}), "id: is an id with more than 256 characters"),
        (
            as_json({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}),
            "tool_calls[0].function: must be",
        ),
        (as_json({"messages": [{"role": "user"}] * 51}), "has more than 50 messages"),
        (as_json([{"role": "user", "content": "a"}] * 51), "[50]: is one conversation, and is too long"),
    ],
)
def test_malformed_archives_are_refused(content: bytes, text: str) -> None:
    """As a whole, with the place."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("openai", content, SMALL)
    assert text in refused.value.message


def test_there_are_no_options() -> None:
    """An unknown one is refused."""
    with pytest.raises(InvalidRequest, match=r"options\[x\]: is not an option"):
        records("openai", as_lines(OPENAI), options={"x": "1"})
