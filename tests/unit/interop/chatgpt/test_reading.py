"""Reader of ChatGPT's export."""

from typing import Any

import pytest

from tests.support.fakes.foreign_archives import (
    CHATGPT,
    NOW,
    PNG,
    SMALL,
    as_json,
    chatgpt,
    node,
    problems_of,
    records,
    sessions_of,
    zipped,
)
from turnwire.domain.archive.records import ImportProblem
from turnwire.domain.conversation.messages import (
    Content,
    FinishReason,
    MessageStatus,
    ModelRun,
    Reasoning,
    Text,
    ToolResult,
    ToolStatus,
)
from turnwire.domain.errors import ArchiveInvalid

ZIP = zipped(
    **{
        "conversations_dot_json": as_json([CHATGPT]),
        "file-Abc1-photo_dot_png": PNG,
        "assets__file-Xyz2-rows_dot_csv": b"1,2",
        "file_0d-sanitized_dot_dat": PNG + b"2",
        "inner_dot_zip": zipped(conversations_dot_json=b"[]"),
        "chat_dot_html": b"<html>",
    }
)


def _contents(*nodes: tuple[str, Any]) -> list[list[Content]]:
    [(_, messages)] = sessions_of(records("chatgpt", as_json([chatgpt(*nodes)])))
    return [[part.content for part in message.parts] for message in messages]


def test_a_conversation_comes_with_everything() -> None:
    """Times, instructions, the branch that is shown, thoughts, models."""
    [(session, messages)] = sessions_of(records("chatgpt", ZIP))
    assert (session.session_id, session.title, session.system) == ("conv-1", "Charts", "I am Ann.\n\nBe brief.")
    assert (session.created_at.timestamp(), session.updated_at.timestamp()) == (1_700_000_000.5, 1_700_000_900)
    assert [message.message_id for message in messages] == ["ask", "think", "recap", "call", "web", "code", "end"]
    _, think, recap, _, _, code, end = messages
    assert think.parts[0].content == Reasoning("Plan\nDraw it.")
    assert think.model_run == ModelRun(provider_id="openai", model_requested="o3")
    assert recap.parts[0].content == Reasoning("Thought for 8s")
    assert code.parts[0].content == Text("```python\n1 + 1\n```")
    assert (end.finish_reason, end.provider_finish_reason) == (FinishReason.STOP, "stop")
    assert end.created_at.timestamp() == 1_700_000_003.25
    assert end.answers_message_id == "ask"


def test_results_are_in_their_calls() -> None:
    """Several results of one call are one; files come along; a tool is named by its first word."""
    messages = sessions_of(records("chatgpt", ZIP))[0][1]
    [(_, run)], [(_, found)] = messages[3].tool_calls(), messages[4].tool_calls()
    assert (run.name, run.call_id, run.input_json, run.output) == ("python", "call", '{"input": "plot()"}', "42")
    assert [(file.mime, file.filename) for file in run.files] == [("image/png", "file_0d-sanitized.dat")]
    assert (found.name, found.input_json, found.output) == ("web.run", '{"q": "x"}', "T\nhttps://x.y\nq")


def test_files_of_the_zip_are_carried() -> None:
    """Pictures and uploads, each once and by the name that it was uploaded with; an inner ZIP is not opened."""
    found = records("chatgpt", ZIP)
    ask = sessions_of(found)[0][1][0]
    assert [(file.filename, file.mime) for file in ask.files()] == [
        ("photo.png", "image/png"),
        ("rows.csv", "text/csv"),
    ]
    assert problems_of(found) == [("OTHER_BRANCHES", "mapping")]


def test_files_that_are_not_there_are_told() -> None:
    """Without the ZIP, all of them."""
    found = records("chatgpt", as_json([CHATGPT]))
    assert problems_of(found)[1:] == [
        ("FILE_NOT_IN_ARCHIVE", "mapping.ask.message.content.parts[0]"),
        ("FILE_NOT_IN_ARCHIVE", "mapping.ask.message.metadata.attachments[1]"),
        ("FILE_NOT_IN_ARCHIVE", "mapping.pic.message.content.parts[0]"),
    ]
    assert sessions_of(found)[0][1][0].parts[0].content == Text("Draw this. 絵")


def test_too_large_files_are_told() -> None:
    """They are not unpacked."""
    content = zipped(**{"conversations_dot_json": as_json([CHATGPT]), "file-Abc1_dot_png": bytes(range(256)) * 8})
    assert ("FILE_TOO_LARGE", "mapping.ask.message.content.parts[0]") in problems_of(records("chatgpt", content, SMALL))


def test_other_branches_are_counted() -> None:
    """The problem has the number of their messages."""
    nodes = [node("a", "root", "user", "1"), node("b", "a", "assistant", "x"), node("c", "a", "assistant", "y")]
    found = records("chatgpt", as_json([chatgpt(*nodes, node("d", "b", "user", "2"), current_node="c")]))
    [problem] = [record for record in found if isinstance(record, ImportProblem)]
    assert problem.explanation == "Left out: messages of branches that are not shown (2)."
    assert [message.message_id for message in sessions_of(found)[0][1]] == ["a", "c"]


@pytest.mark.parametrize(
    ("more", "ids", "problems"),
    [
        ({"current_node": None}, ["a", "b"], []),
        ({"current_node": "gone"}, ["a", "b"], [("MISSING_MESSAGE", "current_node")]),
        ({"current_node": "a"}, ["a"], [("OTHER_BRANCHES", "mapping")]),
    ],
)
def test_the_newest_message_decides(more: dict[str, Any], ids: list[str], problems: list[tuple[str, str]]) -> None:
    """Without `current_node` it is the last one that no other one follows."""
    value = chatgpt(node("a", "root", "user", "1"), node("b", "a", "assistant", "x"), **more)
    found = records("chatgpt", as_json([value]))
    assert [message.message_id for message in sessions_of(found)[0][1]] == ids
    assert problems_of(found) == problems


def test_missing_parents_are_told() -> None:
    """The messages that follow them are carried."""
    found = records("chatgpt", as_json([chatgpt(node("a", "gone", "user", "1"), node("b", "a", "assistant", "x"))]))
    assert problems_of(found) == [("MISSING_MESSAGE", "mapping.a.parent")]
    assert len(sessions_of(found)[0][1]) == 2


def test_hidden_messages_are_told() -> None:
    """A text that ChatGPT shows to nobody is no message; an empty one is nothing."""
    nodes = [
        node("a", "root", "system", "secret", is_visually_hidden_from_conversation=True),
        node("b", "a", "system", "", is_visually_hidden_from_conversation=True),
        node("c", "b", "user", "hi"),
    ]
    found = records("chatgpt", as_json([chatgpt(*nodes)]))
    assert problems_of(found) == [("HIDDEN_MESSAGE", "mapping.a.message")]
    assert [message.message_id for message in sessions_of(found)[0][1]] == ["c"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"content_type": "text", "parts": ["a", "", None, "b"]}, [Text("a"), Text("b")]),
        ({"content_type": "text", "parts": []}, []),
        ({"content_type": "text"}, []),
        ({"content_type": "tether_browsing_display", "summary": "s", "result": "r"}, [Text("s\nr")]),
        ({"content_type": "system_error", "name": "E", "text": "no"}, [Text("E\nno")]),
        ({"content_type": "execution_output", "text": "42"}, [Text("42")]),
        ({"content_type": "sonic_webpage", "title": "T", "url": "u", "text": "w"}, [Text("T\nu\nw")]),
        ({"content_type": "thoughts", "parts": ["hm"]}, [Reasoning("hm")]),
        (
            {"content_type": "multimodal_text", "parts": [{"content_type": "audio_transcription", "text": "said"}]},
            [Text("said")],
        ),
        ({"content_type": "future", "text": "t", "parts": ["p", {"x": 1}]}, [Text("t"), Text("p")]),
        ({"content_type": "text", "parts": [{"content_type": "future", "text": "t"}]}, [Text("t")]),
    ],
)
def test_contents_give_their_text(content: Any, expected: list[Content]) -> None:
    """Those of an unknown type too."""
    assert _contents(node("a", "root", "assistant", content)) == ([expected] if expected else [])


def test_unknown_contents_are_told() -> None:
    """Once for all of a kind."""
    parts = [{"content_type": "future", "text": "t"}] * 3
    found = records("chatgpt", as_json([chatgpt(node("a", "root", "user", {"content_type": "text", "parts": parts}))]))
    [problem] = [record for record in found if isinstance(record, ImportProblem)]
    assert (problem.reason, problem.place) == ("UNKNOWN_CONTENT", "mapping.a.message.content.parts[0]")
    assert "(3)" in problem.explanation


def test_unknown_roles_are_told() -> None:
    """The message is left out."""
    found = records("chatgpt", as_json([chatgpt(node("a", "root", "critic", "no"), node("b", "a", "user", "x"))]))
    assert problems_of(found) == [("UNKNOWN_CONTENT", "mapping.a.message.author")]


def test_calls_without_results_and_results_without_calls() -> None:
    """The first have an error, the second stay messages."""
    nodes = [
        node("a", "root", "tool", {"content_type": "execution_output", "text": "lost"}, name="python"),
        node("b", "a", "assistant", {"content_type": "text", "parts": ["x"]}, recipient="bio"),
        node("c", "b", "assistant", {"content_type": "text", "parts": ["y"]}, recipient="dalle.text2im"),
        node("d", "c", "tool", {"content_type": "system_error", "text": "no"}, name="dalle.text2im"),
    ]
    lost, [bio], [drawn] = _contents(*nodes)
    assert lost == [ToolResult(call_id="", output="lost")]
    assert (bio.status, bio.error) == (ToolStatus.ERROR, "The archive has no result of this call.")
    assert (drawn.status, drawn.error) == (ToolStatus.ERROR, "no")


def test_interrupted_answers_are() -> None:
    """By their finish or their status."""
    answer = node("a", "root", "assistant", "x", finish_details={"type": "interrupted"})
    [(_, [message])] = sessions_of(records("chatgpt", as_json([chatgpt(answer)])))
    assert (message.status, message.finish_reason) == (MessageStatus.INTERRUPTED, FinishReason.ABORTED)


def test_times_may_be_missing() -> None:
    """A message has the time of the one before, a conversation without any is of now."""
    key, untimed = node("b", "a", "assistant", "x")
    untimed["message"]["create_time"] = None
    value = chatgpt(node("a", "root", "user", "1"), (key, untimed), create_time=None, update_time=None)
    [(session, [asked, answered])] = sessions_of(records("chatgpt", as_json([value])))
    assert session.created_at == NOW
    assert answered.created_at == asked.created_at


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (chatgpt(id=None, conversation_id=None), "[0].id: is missing"),
        ({"id": "x"}, "[0].mapping: is missing"),
        ({"id": "x", "mapping": []}, "[0].mapping: must be an object"),
        ({"id": "x", "mapping": {"a": 1}}, "[0].mapping.a: must be an object, not a number"),
        (chatgpt(node("a", "b", "user", "x"), node("b", "a", "user", "y")), "[0].mapping: has messages that go round"),
        (chatgpt(node("a", "a", "user", "x")), "[0].mapping: has messages that go round"),
        (
            chatgpt(node("a", "root", "user", {"content_type": 7})),
            "mapping.a.message.content.content_type: must be text",
        ),
        (
            chatgpt(node("a", "root", "user", {"content_type": "text", "parts": [7]})),
            "content.parts[0]: must be text or an object, not a number",
        ),
        (chatgpt(create_time=1e20), "create_time: is not a moment"),
        (chatgpt(create_time="today"), "create_time: must be a number"),
    ],
)
def test_malformed_conversations_are_refused(value: Any, text: str) -> None:
    """The whole file, with the place."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("chatgpt", as_json([value]))
    assert text in refused.value.message


def test_an_archived_conversation_stays_archived() -> None:
    """Since its last change: the export does not say more."""
    [(session, _)] = sessions_of(records("chatgpt", as_json([{**CHATGPT, "is_archived": True}])))
    assert session.archived_at == session.updated_at
    [(session, _)] = sessions_of(records("chatgpt", as_json([{**CHATGPT, "is_archived": "no"}])))
    assert session.archived_at is None
