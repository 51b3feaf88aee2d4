"""Reader of OpenCode's exports."""

from typing import Any

import pytest

from tests.support.fakes.foreign_archives import (
    NOW,
    OPENCODE,
    SMALL,
    answered,
    as_json,
    as_lines,
    asked,
    opencode,
    problems_of,
    records,
    sessions_of,
    tool,
)
from turnwire.domain.archive.records import ArchivedMessage, ImportProblem
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    ModelRun,
    Reasoning,
    Text,
    ToolStatus,
)
from turnwire.domain.errors import ArchiveInvalid
from turnwire.domain.money import Usage


def _messages(*messages: Any, **more: Any) -> list[Message]:
    [(_, found)] = sessions_of(records("opencode", as_json(opencode(*messages, **more))))
    return found


def test_a_session_comes_with_everything() -> None:
    """Title, directory, system prompt, times, models, tokens and exact cost."""
    found = records("opencode", as_json(OPENCODE))
    [(session, [question, called, done, _, _])] = sessions_of(found)
    assert (session.session_id, session.title, session.directory) == ("ses_1", "Fix it", "/home/ann/project")
    assert (session.system, session.created_at.timestamp()) == ("Be brief.", 1_700_000_000.123)
    assert question.parts[0].content == Text("Fix it. 直す")
    assert [(file.filename, file.mime) for file in question.files()] == [("a.png", "image/png")]
    assert called.model_run == ModelRun(provider_id="anthropic", model_requested="claude-sonnet-4")
    assert called.usage == Usage(
        input_tokens=10, output_tokens=20, reasoning_tokens=5, cache_read_tokens=3, cache_write_tokens=4
    )
    assert (called.cost_pico_usd, called.finish_reason) == (1_250_000_000, FinishReason.TOOL_USE)
    assert (done.message_id, done.answers_message_id, done.finish_reason) == ("msg_3", "msg_1", FinishReason.STOP)
    assert (done.created_at.timestamp(), done.updated_at.timestamp()) == (1_700_000_002, 1_700_000_003.5)
    assert problems_of(found) == []


def test_calls_have_their_results() -> None:
    """Output or error, files, times, title and metadata; the ids are OpenCode's."""
    [(part, listed), (_, failed)] = _messages(*OPENCODE["messages"])[1].tool_calls()
    assert (part.part_id, listed.call_id, listed.name, listed.input_json) == (
        "prt_2_2", "call_1", "bash", '{"command":"ls"}',
    )  # fmt: skip
    assert (listed.status, listed.output) == (ToolStatus.SUCCESS, "a.py")
    assert listed.metadata_json == '{"title":"List","metadata":{"exit":0}}'
    assert listed.finished_at.timestamp() == 1_700_000_002.9
    assert [file.mime for file in listed.files] == ["image/png"]
    assert (failed.status, failed.error) == (ToolStatus.ERROR, "no such file")


def test_signatures_travel_with_reasoning() -> None:
    """With the model that made them; other seals are told."""
    [part, *_] = _messages(*OPENCODE["messages"])[1].parts
    assert part.content == Reasoning("hm")
    assert part.provider_state == '{"api":"anthropic","model":"claude-sonnet-4","signature":"c2ln"}'
    sealed = {"type": "reasoning", "text": "hm", "metadata": {"openai": {"reasoningEncryptedContent": "x"}}}
    found = records("opencode", as_json(opencode(answered("msg_1", sealed))))
    assert problems_of(found) == [("SEALED_REASONING", "messages[0].parts[0].metadata")]
    assert sessions_of(found)[0][1][0].parts[0].provider_state is None


def test_what_was_taken_back_is_hidden() -> None:
    """From its message on."""
    found = [record for record in records("opencode", as_json(OPENCODE)) if isinstance(record, ArchivedMessage)]
    assert [record.hidden for record in found] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("revert", "problem"),
    [({"messageID": "msg_9"}, "MISSING_MESSAGE"), ({"messageID": "msg_1", "partID": "prt_1"}, "NO_PLACE")],
)
def test_other_reverts_are_told(revert: Any, problem: str) -> None:
    """Nothing is hidden."""
    found = records("opencode", as_json(opencode(asked("msg_1", "x"), revert=revert)))
    assert problems_of(found) == [(problem, "info.revert")]
    assert [record.hidden for record in found if isinstance(record, ArchivedMessage)] == [False]


def elsewhere(word: str, message: str) -> Failure:
    """Returns the failure of an answer that failed in OpenCode."""
    return Failure("FAILED_ELSEWHERE", message, {"reason": word})


def test_aborted_and_failed_answers_are() -> None:
    """A failure names the word of OpenCode."""
    error = {"name": "ProviderAuthError", "data": {"providerID": "openai", "message": "no key"}}
    odd = {"name": "ÄÖ", "data": {}}
    stopped = _messages(*OPENCODE["messages"])[4]
    assert (stopped.status, stopped.finish_reason) == (MessageStatus.INTERRUPTED, FinishReason.ABORTED)
    assert (stopped.usage, stopped.cost_pico_usd) == (None, None)
    failed, other = _messages(answered("msg_1", error=error), answered("msg_2", error=odd))
    assert (failed.status, failed.failure) == (MessageStatus.FAILED, elsewhere("ProviderAuthError", "no key"))
    assert other.failure == elsewhere("ÄÖ", "")


@pytest.mark.parametrize("state", [{"status": "pending", "raw": "{"}, {"status": "running"}])
def test_calls_that_have_not_ended_have_an_error(state: Any) -> None:
    """An archive has no more to come."""
    [message] = _messages(answered("msg_1", tool("c", **state)))
    [(_, call)] = message.tool_calls()
    assert (call.status, call.error) == (ToolStatus.ERROR, "The archive has no result of this call.")


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "snapshot", "snapshot": "abc"}, "NO_PLACE"),
        ({"type": "patch", "hash": "abc", "files": []}, "NO_PLACE"),
        ({"type": "agent", "name": "plan"}, "NO_PLACE"),
        ({"type": "compaction", "auto": True}, "NO_PLACE"),
        ({"type": "retry", "attempt": 1}, "NO_PLACE"),
        ({"type": "future"}, "UNKNOWN_CONTENT"),
        ({"type": "file", "mime": "text/plain", "url": "file:///etc/passwd"}, "FILE_NOT_IN_ARCHIVE"),
        ({"type": "file", "mime": "text/html", "url": "http://127.0.0.1/"}, "FILE_NOT_IN_ARCHIVE"),
    ],
)
def test_what_has_no_place_is_told(part: Any, reason: str) -> None:
    """Once for each kind, with the first place."""
    found = records("opencode", as_json(opencode(asked("msg_1", "x", part, part), asked("msg_2", "y"))))
    assert problems_of(found)[0] == (reason, "messages[0].parts[1]")
    assert [len(message.parts) for message in sessions_of(found)[0][1]] == [1, 1]


def test_texts_keep_their_words() -> None:
    """Those that no model got too, which is told; tasks of other agents are text."""
    subtask = {"type": "subtask", "prompt": "look", "description": "d", "agent": "explore"}
    parts = [{"type": "text", "text": "seen", "ignored": True}, subtask]
    found = records("opencode", as_json(opencode(asked("msg_1", *parts))))
    assert [part.content for part in sessions_of(found)[0][1][0].parts] == [Text("seen"), Text("look")]
    assert [reason for reason, _ in problems_of(found)] == ["IGNORED_TEXT", "SUBTASK"]


@pytest.mark.parametrize(
    "content", [as_json([OPENCODE]), as_lines(OPENCODE), as_json(OPENCODE).replace(b"{", b"{\n", 1)]
)
def test_all_forms_are_the_same_session(content: bytes) -> None:
    """A document as OpenCode writes it, an array, a line."""
    expected = sessions_of(records("opencode", as_json(OPENCODE)))
    assert sessions_of(records("opencode", content)) == expected


def test_lists_and_odd_directories_are_told() -> None:
    """A list of things to do has no place; a directory is an absolute path."""
    value = {**opencode(directory="C:\\Users\\ann"), "todos": [{"content": "x"}]}
    found = records("opencode", as_json(value))
    assert problems_of(found) == [("NO_PLACE", "todos"), ("NO_PLACE", "info.directory")]
    assert [record for record in found if isinstance(record, ImportProblem)]
    assert sessions_of(records("opencode", as_json(opencode(directory="/"))))[0][0].directory == ""


def test_what_is_too_long_for_a_session_is_told() -> None:
    """A title is cut; a system prompt and the facts of a call are left out."""
    call = tool("c", status="completed", output="x", metadata={"diff": "x" * 70_000})
    value = opencode(asked("msg_1", "x", system="x" * 70_000), answered("msg_2", call), title="x" * 2_000)
    found = records("opencode", as_json(value))
    [(session, [_, message])] = sessions_of(found)
    assert (session.title, session.system) == ("x" * 1024, None)
    assert message.tool_calls()[0][1].metadata_json == ""
    assert problems_of(found) == [
        ("TITLE_CUT", "info.title"),
        ("NO_PLACE", "messages"),
        ("NO_PLACE", "messages[1].parts[0].state.metadata"),
    ]


def test_times_may_be_missing() -> None:
    """Then a session is of now."""
    [(session, _)] = sessions_of(records("opencode", as_json(opencode(time=None))))
    assert session.created_at == NOW


def test_equal_ids_become_different() -> None:
    """Ids of messages and of parts."""
    first, second = _messages(asked("msg_1", "x"), asked("msg_1", "y"))
    assert (first.message_id, second.message_id) == ("msg_1", "msg_1-1")
    assert (first.parts[0].part_id, second.parts[0].part_id) == ("prt_1_0", "prt_1_0-2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"messages": []}, "info: must be an object, not null"),
        ({"info": {"id": "s"}}, "messages: is missing"),
        ({"info": {}, "messages": []}, "info.id: is missing"),
        (opencode({"parts": []}), "messages[0].info: must be an object"),
        (opencode({"info": {}}), "messages[0].info.role: is missing"),
        (opencode(asked("msg_1", {"text": "x"})), "messages[0].parts[0].type: is missing"),
        (opencode(asked("msg_1", {"type": "file"})), "messages[0].parts[0].url: is missing"),
        (opencode(answered("msg_1", tool("c", status="lost"))), "parts[0].state.status: must be one of pending"),
        (opencode(answered("msg_1", tool("c"))), "parts[0].state.status: is missing"),
        (opencode(answered("msg_1", cost=-1)), "info.cost: must be an amount"),
        (opencode(answered("msg_1", tokens={"input": -1})), "info.tokens.input: must be a count"),
        (opencode(answered("msg_1", tokens={"input": 1e300})), "info.tokens.input: must be a count"),
        (opencode(time={"created": -1}), "info.time.created: is not a moment from 1970 to 9998"),
        (opencode(time={"created": 1e30}), "info.time.created: is not a moment"),
    ],
)
def test_malformed_sessions_are_refused(value: Any, text: str) -> None:
    """The whole file, with line and place."""
    with pytest.raises(ArchiveInvalid) as refused:
        records("opencode", as_lines(opencode(), value), SMALL)
    assert text in refused.value.message
    assert refused.value.metadata["line"] == "2"


def test_an_archived_session_stays_archived() -> None:
    """Since the time that the archive says."""
    time = {**OPENCODE["info"]["time"], "archived": 1_700_000_009_000}
    archived = {**OPENCODE, "info": {**OPENCODE["info"], "time": time}}
    [(session, _)] = sessions_of(records("opencode", as_json(archived)))
    assert session.archived_at.timestamp() == 1_700_000_009
