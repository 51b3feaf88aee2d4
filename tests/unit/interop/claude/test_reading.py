"""Reader of Claude's export."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fakes.foreign_archives import (
    CLAUDE,
    NOW,
    PNG,
    SMALL,
    as_json,
    claude,
    problems_of,
    records,
    said,
    sessions_of,
    zipped,
)
from turnwire.domain.archive.records import ArchivedFile, ImportProblem
from turnwire.domain.conversation.messages import (
    Content,
    MessageType,
    ModelRun,
    Reasoning,
    Text,
    ToolResult,
    ToolStatus,
)
from turnwire.domain.errors import ArchiveInvalid


def _messages(*messages: Any, **more: Any) -> Any:
    [(_, found)] = sessions_of(records("claude", as_json([claude(*messages, **more)])))
    return found


def _contents(*messages: Any) -> list[list[Content]]:
    return [[part.content for part in message.parts] for message in _messages(*messages)]


def test_a_conversation_comes_with_everything() -> None:
    """Name, times, senders, thinking, texts in their order."""
    [(session, messages)] = sessions_of(records("claude", as_json([CLAUDE])))
    assert (session.session_id, session.title) == ("conv-1", "Poems")
    assert session.created_at == datetime(2025, 5, 1, 12, 0, 0, 123456, UTC)
    assert session.updated_at == datetime(2025, 5, 1, 12, 30, tzinfo=UTC)
    asked, answered, thanked = messages
    assert [message.type for message in messages] == [MessageType.USER, MessageType.ASSISTANT, MessageType.USER]
    assert asked.parts[1].content == Text("Read this. 詩")
    assert answered.parts[0].content == Reasoning("A rose it is.")
    assert [type(part.content).__name__ for part in answered.parts] == [
        "Reasoning",
        "Text",
        "ToolUse",
        "ToolUse",
        "Text",
    ]
    assert thanked.parts[0].content == Text("Thanks.")
    assert (answered.answers_message_id, answered.created_at.microsecond) == ("m1", 500_000)


def test_results_are_in_their_calls() -> None:
    """By id, or by name where there is none; with pictures."""
    found = records("claude", as_json([CLAUDE]))
    [(_, searched), (_, made)] = sessions_of(found)[0][1][1].tool_calls()
    assert (searched.call_id, searched.input_json) == ("t1", '{"query":"rose","n":1.5}')
    assert searched.output == "Rose\nhttps://x.y\nA flower.\ndone"
    assert [file.mime for file in searched.files] == ["image/png"]
    assert (made.status, made.error) == (ToolStatus.ERROR, "OK")


def test_attachments_are_text_files() -> None:
    """With what Claude read in them, under their name; what the export lacks is told."""
    found = records("claude", as_json([CLAUDE]))
    assert [record.content for record in found if isinstance(record, ArchivedFile)] == [b"A rose.", PNG]
    [file] = sessions_of(found)[0][1][0].files()
    assert (file.filename, file.mime) == ("poem.pdf", "text/plain")
    assert problems_of(found) == [("FILE_NOT_IN_ARCHIVE", "chat_messages[0].files[0]")]


def test_files_of_the_zip_are_carried() -> None:
    """By their id, wherever they are in it."""
    content = zipped(**{"conversations_dot_json": as_json([CLAUDE]), "files__0197-aa__rose_dot_png": PNG})
    found = records("claude", content)
    assert problems_of(found) == []
    assert [file.filename for file in sessions_of(found)[0][1][0].files()] == ["poem.pdf", "rose.png"]


def test_models_are_kept() -> None:
    """Where the conversation names one."""
    asked, answered = _messages(said("a", "human", "x"), said("b", "assistant", "y"), model="claude-sonnet-4")
    assert asked.model_run is None
    assert answered.model_run == ModelRun(provider_id="anthropic", model_requested="claude-sonnet-4")


@pytest.mark.parametrize("leaf", [None, "c"])
def test_other_branches_are_counted(leaf: str | None) -> None:
    """The branch to the leaf is the one that is shown; without one, that to the newest message."""
    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        said("a", "human", "1", parent_message_uuid=root),
        said("b", "assistant", "x", parent_message_uuid="a"),
        said("c", "assistant", "y", parent_message_uuid="a"),
    ]
    found = records("claude", as_json([claude(*messages, current_leaf_message_uuid=leaf)]))
    [problem] = [record for record in found if isinstance(record, ImportProblem)]
    assert (problem.reason, problem.explanation) == (
        "OTHER_BRANCHES", "Left out: messages of branches that are not shown (1).",
    )  # fmt: skip
    assert [message.message_id for message in sessions_of(found)[0][1]] == ["a", "c"]


def test_missing_parents_are_told() -> None:
    """All messages are taken in their order."""
    messages = [said("a", "human", "1"), said("b", "assistant", "x", parent_message_uuid="gone")]
    found = records("claude", as_json([claude(*messages)]))
    assert problems_of(found) == [("MISSING_MESSAGE", "chat_messages[1]")]
    assert len(sessions_of(found)[0][1]) == 2


def test_unknown_blocks_and_senders_are_told() -> None:
    """A block keeps its text."""
    blocks = [{"type": "voice_note", "text": "hum"}, {"type": "flag"}]
    messages = [said("a", "human", *blocks), said("b", "robot", "x")]
    found = records("claude", as_json([claude(*messages)]))
    assert problems_of(found) == [
        ("UNKNOWN_CONTENT", "chat_messages[0].content[0]"),
        ("UNKNOWN_CONTENT", "chat_messages[1].sender"),
    ]
    assert [part.content for part in sessions_of(found)[0][1][0].parts] == [Text("hum")]


def test_results_without_calls_stay_messages() -> None:
    """And calls without results have an error."""
    use = {"type": "tool_use", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t9", "content": [{"type": "text", "text": "lost"}]}
    [[call], [lost]] = _contents(said("a", "assistant", use, result))
    assert (call.status, call.error) == (ToolStatus.ERROR, "The archive has no result of this call.")
    assert lost == ToolResult(call_id="t9", output="lost")


def test_too_large_files_are_told() -> None:
    """The message is there without them."""
    attached = [{"file_name": "a.txt", "extracted_content": "x" * 2000}]
    found = records("claude", as_json([claude(said("a", "human", "see", attachments=attached))]), SMALL)
    assert problems_of(found) == [("FILE_TOO_LARGE", "chat_messages[0].attachments[0]")]


def test_times_may_be_missing() -> None:
    """Then a conversation is of now, and a message of the time of the one before."""
    value = claude(said("a", "human", "x", created_at=None), created_at=None, updated_at=None)
    [(session, [message])] = sessions_of(records("claude", as_json([value])))
    assert (session.created_at, message.created_at) == (NOW, NOW)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (claude(uuid=None), "[0].uuid: is missing"),
        ({"uuid": "x"}, "[0].chat_messages: is missing"),
        ({"uuid": "x", "chat_messages": {}}, "[0].chat_messages: must be an array"),
        (claude("x"), "[0].chat_messages[0]: must be an object, not text"),
        (claude(said("a", "human", text=7, content=None)), "chat_messages[0].text: must be text"),
        (
            claude(said("a", "human", {"type": "text", "text": 7}, text="")),
            "content[0].text: must be text, not a number",
        ),
        (claude(created_at="yesterday"), "created_at: is not a date and time"),
        (claude(created_at="1969-12-31T23:59:59Z"), "created_at: is not a moment from 1970 to 9998"),
        (claude(created_at=7), "created_at: must be text"),
        (
            claude(said("a", "human", parent_message_uuid="b"), said("b", "human", parent_message_uuid="a")),
            "chat_messages: has messages that go round in a circle",
        ),
    ],
)
def test_malformed_conversations_are_refused(value: Any, text: str) -> None:
    """The whole file, with the place."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("claude", as_json([value]))
    assert text in refused.value.message
