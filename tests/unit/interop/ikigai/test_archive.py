"""Stored rows of ikigai as an archive."""

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Message, Origin, Text, ToolStatus, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest
from turnwire.interop.archive.bounds import Bounds
from turnwire.interop.ikigai import RowsReader, archive

BOUNDS = Bounds()
CALL = {"tool_call_id": "c1", "name": "bash", "arguments": "{}", "thinking": {"text": "hm", "signature": "sig"}}


def _row(number: int, kind: str, content: Any = None, session: Any = 1, **other: Any) -> dict[str, Any]:
    at = f"2026-01-31T22:{number // 60:02}:{number % 60:02}.25+00:00"
    return {"id": number, "session_id": session, "kind": kind, "content": content, "created_at": at, **other}


def _read(
    rows: Iterable[Mapping[str, Any] | str | bytes],
    options: Mapping[str, str] | None = None,
    bounds: Bounds = BOUNDS,
) -> list[Record | ImportProblem]:
    lines = [
        row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode() for row in rows
    ]
    return list(RowsReader(bounds).read(io.BytesIO(b"\n".join(lines)), options or {}))


def _one(found: list[Record | ImportProblem]) -> tuple[Session, list[Message], list[bool]]:
    """Returns the only session, its messages, and which of them are hidden."""
    first, *records, end = [record for record in found if not isinstance(record, ImportProblem)]
    assert isinstance(first, ArchivedSession)
    messages = [record for record in records if isinstance(record, ArchivedMessage)]
    assert end == SessionEnd(len(messages)) == SessionEnd(len(records))
    return first.session, [record.message for record in messages], [record.hidden for record in messages]


def _shown(rows: list[Mapping[str, Any]]) -> list[str]:
    _, messages, hidden = _one(_read(rows))
    found = [message.parts[0].content for message, is_hidden in zip(messages, hidden, strict=True) if not is_hidden]
    return [content.text if isinstance(content, Text) else type(content).__name__ for content in found]


def test_rows_become_a_session() -> None:
    """With the times and the ids that they have; results are in their calls, the system row is the system prompt."""
    session, messages, hidden = _one(
        _read(
            [
                _row(1, "system", "Be brief."),
                _row(2, "user", "hi", provider_metadata={"a": 1}),
                _row(3, "tool_call", data_json=json.dumps(CALL)),
                _row(4, "tool_result", data_json='{"tool_call_id": "c1", "output": "a.py"}'),
                _row(5, "assistant", "There is a.py.", provider_metadata='{"b": 2}'),
            ]
        )
    )
    assert (session.title, session.system) == ("1", "Be brief.")
    assert session.origin == Origin(system="ikigai", session_id="1")
    assert [str(at)[17:25] for at in (session.created_at, session.updated_at)] == ["01.25000", "05.25000"]
    question, called, answer = messages
    assert [message.origin.message_id for message in messages if message.origin] == ["2", "3", "5"]
    assert [message.metadata_json for message in (question, answer)] == [
        '{"provider_metadata":{"a":1}}', '{"provider_metadata":{"b":2}}',
    ]  # fmt: skip
    assert called.answers_message_id == answer.answers_message_id == question.message_id
    call = called.parts[1].content
    assert isinstance(call, ToolUse)
    assert (call.status, call.output, str(call.finished_at)[17:22]) == (ToolStatus.SUCCESS, "a.py", "04.25")
    assert hidden == [False] * 3


def test_rows_come_as_their_table_has_them() -> None:
    """The data may be an object under the name of its column, an id text, a time have no offset; the rest is left."""
    row = {**_row(1, "tool_call", session="s"), "id": "x", "data": CALL, "agent_uuid": None, "created_at": "2026-01-31"}
    session, [message], _ = _one(_read([row]))
    assert str(session.created_at) == "2026-01-31 00:00:00+00:00"
    assert [type(part.content).__name__ for part in message.parts] == ["Reasoning", "ToolUse"]


def test_conversations_follow_each_other() -> None:
    """Each is a session; blank lines between them say nothing."""
    rows = [_row(1, "user", "a", session=2), "", _row(2, "user", "b", session=2), _row(3, "clear", session="x")]
    sessions = [record.session for record in _read(rows) if isinstance(record, ArchivedSession)]
    assert [(session.title, session.session_id) for session in sessions] == [("2", "2"), ("x", "x")]


def test_ids_follow_from_rows() -> None:
    """So a second import finds what the first has stored, also when rows before have gone."""
    nameless = {**_row(3, "user", "c"), "id": None}
    rows = [_row(1, "user", "a"), _row(2, "tool_call", data_json=json.dumps(CALL)), nameless]
    _, messages, _ = _one(_read(rows))
    assert [message.message_id for message in messages] == ["1", "2", "nameless-1"]
    assert [part.part_id for message in messages for part in message.parts] == ["1/0", "2/0", "2/1", "nameless-1/0"]
    assert _one(_read(rows[1:]))[1][0] == msgspec.structs.replace(messages[1], answers_message_id="")


def test_another_key_names_conversations() -> None:
    """As the option says."""
    rows = [{**_row(1, "user", "a"), "agent": "u1"}, {**_row(2, "user", "b"), "agent": "u2"}]
    found = _read(rows, {"key": "agent"})
    assert [record.session.title for record in found if isinstance(record, ArchivedSession)] == ["u1", "u2"]


def test_a_clear_hides_what_was_before() -> None:
    """A result of a cleared call stays a message, and the last prompt counts."""
    rows = [
        _row(1, "system", "old"), _row(2, "user", "a"), _row(3, "tool_call", data_json=json.dumps(CALL)),
        _row(4, "clear"), _row(5, "tool_result", data_json='{"tool_call_id": "c1", "output": "late"}'),
        _row(6, "user", "b"),
    ]  # fmt: skip
    assert _shown(rows) == ["ToolResult", "b"]
    assert _one(_read(rows))[0].system == "old"
    assert _one(_read([*rows, _row(7, "system", "new"), _row(8, "system", "new")]))[0].system == "new"


def test_a_rewind_hides_what_is_behind_its_mark() -> None:
    """Also to an earlier mark, and again; later marks are gone then."""
    rows: list[Mapping[str, Any]] = [
        _row(1, "user", "a"), _row(2, "mark", data_json='{"label": "x"}'), _row(3, "user", "b"),
        _row(4, "mark", data_json="{}"), _row(5, "assistant", "c"),
        _row(6, "rewind", data_json='{"target_message_id": 4, "label": null}'), _row(7, "assistant", "d"),
    ]  # fmt: skip
    assert _shown(rows) == ["a", "b", "d"]
    rows += [_row(8, "rewind", data_json='{"target_message_id": 2}'), _row(9, "user", "e")]
    assert _shown(rows) == ["a", "e"]
    assert _shown([*rows, _row(10, "rewind", data_json='{"target_message_id": 2}')]) == ["a"]
    _, messages, _ = _one(_read(rows))
    assert messages[-1].parts[0].content == Text("e")


@pytest.mark.parametrize("data", [None, "{", "[]", "{}", '{"target_message_id": true}', '{"target_message_id": 4}'])
def test_a_rewind_without_its_mark_is_reported(data: str | None) -> None:
    """It hides nothing. A clear has taken the marks with it."""
    rows = [
        _row(4, "mark"), _row(5, "clear"), _row(6, "user", "a"), _row(7, "rewind", data_json=data),
    ]  # fmt: skip
    assert _shown(rows) == ["a"]
    [problem] = [record for record in _read(rows) if isinstance(record, ImportProblem)]
    assert (problem.reason, problem.line, problem.source_id) == ("MARK_UNKNOWN", 4, "1")


def test_answers_after_a_rewind_name_their_question() -> None:
    """Which is not one that was taken back."""
    rows = [
        _row(1, "user", "a"), _row(2, "mark"), _row(3, "user", "b"),
        _row(4, "rewind", data_json='{"target_message_id": 2}'), _row(5, "assistant", "c"),
    ]  # fmt: skip
    _, messages, _ = _one(_read(rows))
    assert messages[2].answers_message_id == messages[0].message_id


def test_calls_without_a_result_have_an_error() -> None:
    """Which says so."""
    _, [message], _ = _one(_read([_row(1, "tool_call", data_json=json.dumps(CALL))]))
    call = message.parts[1].content
    assert isinstance(call, ToolUse)
    assert (call.status, call.output, call.error) == (
        ToolStatus.ERROR, None, "The archive has no result of this call.",
    )  # fmt: skip


def test_a_long_prompt_is_the_first_message() -> None:
    """Nothing of it is lost."""
    session, messages, _ = _one(_read([_row(1, "user", "a"), _row(2, "system", "x" * 70_000)]))
    assert session.system is None
    assert [message.type.value for message in messages] == ["system", "user"]
    assert len({message.message_id for message in messages}) == 2


def test_kinds_are_left_out_as_asked() -> None:
    """The first of each is reported; without the option they are refused."""
    rows = [_row(1, "usage"), _row(2, "user", "a"), _row(3, "usage")]
    found = _read(rows, {"skip": "fork, usage"})
    assert len(_one(found)[1]) == 1
    assert [(r.reason, r.line) for r in found if isinstance(r, ImportProblem)] == [("ROW_LEFT_OUT", 1)]
    with pytest.raises(ArchiveInvalid, match="line 1: kind: 'usage' is unknown"):
        _read(rows)


def test_signatures_belong_to_the_named_model() -> None:
    """As options name it."""
    rows = [_row(1, "tool_call", data_json=json.dumps(CALL))]
    _, [message], _ = _one(_read(rows, {"provider": "p", "model": "m", "api": "anthropic"}))
    assert message.model_run is not None
    assert json.loads(message.parts[0].provider_state or "") == {"api": "anthropic", "model": "m", "signature": "sig"}


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("", "holds no rows"),
        ("[]", "line 2: must be an object, not an array"),
        ('{"kind": "user", "con', "line 2: ends inside JSON: the archive is cut"),
        (b'{"kind": "\xff"}', "line 2: is not JSON"),
        ('{"a":' * 1_000, "line 2: is deeper than 100 levels"),
        ('{"id": ' + "9" * 5_000 + "}", "line 2: is not JSON: "),
        ('{"id": NaN}', "line 2: is not JSON: "),
        ({"session_id": 1, "kind": "user"}, "line 2: created_at: is missing"),
        ({"session_id": 1, "kind": "user", "created_at": "now"}, "line 2: created_at: must be a time"),
        (
            {"session_id": 1, "kind": "user", "created_at": "0001-01-01T00:00:00+14:00"},
            "line 2: created_at: must be a time",
        ),
        ({"session_id": 1, "kind": "user", "created_at": 5}, "line 2: created_at: must be text, not a number"),
        ({**_row(1, "user", "a"), "session_id": None}, "line 2: session_id: is missing"),
        ({**_row(1, "user", "a"), "session_id": True}, "line 2: session_id: must be text or a whole number"),
        ({**_row(1, "user", "a"), "session_id": ""}, "line 2: session_id: must have 1 to 255 characters"),
        (_row(1, "user"), "line 2: content: is missing in a message of kind user"),
        (_row(1, "tool_call", data_json='{"tool_call_id": 7}'), "line 2: data_json.tool_call_id: must be text"),
        (_row(1, "user", "a", provider_metadata=[]), "line 2: provider_metadata: must be an object"),
        (_row(1, "user", "a", provider_metadata={"a": "x" * 70_000}), "line 2: provider_metadata: is larger than"),
        (_row(1, "user", "a", provider_metadata="{"), "line 2: provider_metadata: is text that is not JSON"),
        (_row(1, "user", "a", provider_metadata="x" * 70_000), "line 2: provider_metadata: must be an object"),
        (_row(1, "tool", data_json="," * 3_000_001), "line 2: data_json: has more than"),
        (_row(1, "tool", data_json="x" * (16 * 2**20 + 1)), "line 2: data_json: has more than"),
        (_row(1, "system", {"a": 1}), "line 2: content: must be text"),
    ],
)
def test_wrong_rows_are_refused(row: Any, error: str) -> None:
    """With the line and the key."""
    with pytest.raises(ArchiveInvalid) as found:
        _read(["", row])
    assert str(found.value).startswith(f"upload_id: {error}")
    assert found.value.metadata.get("line", "") == ("2" if error.startswith("line") else "")


def test_rows_that_do_not_stand_together_are_refused() -> None:
    """Otherwise one conversation would become two."""
    rows = [_row(1, "user", "a", session=1), _row(2, "user", "b", session=2), _row(3, "user", "c", session=1)]
    with pytest.raises(ArchiveInvalid, match="line 3: session_id: rows of this conversation came before"):
        _read(rows)


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        (Bounds(conversation_bytes=50), "line 1: is longer than 50 bytes"),
        (Bounds(messages=2), "line 3: the conversation has more than 2 rows"),
        (Bounds(conversation_bytes=200), "line 3: the conversation has more than 200 bytes"),
        (Bounds(values=5), "line 1: has more than 5 values"),
    ],
)
def test_everything_has_a_bound(bounds: Bounds, error: str) -> None:
    """Of a line and a conversation."""
    with pytest.raises(ArchiveInvalid, match=error):
        _read([_row(number, "user", "a") for number in range(4)], bounds=bounds)


def test_conversations_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one archive."""
    monkeypatch.setattr(archive, "MAX_CONVERSATIONS", 1)
    with pytest.raises(ArchiveInvalid, match="line 2: has more than 1 conversations"):
        _read([_row(1, "user", "a"), _row(2, "user", "b", session=2)])


@pytest.mark.parametrize(
    ("options", "error"),
    [({"colour": "red"}, r"options\[colour\]: is not one of"), ({"model": "m"}, "options: provider, model and api go")],
)
def test_wrong_options_are_refused(options: dict[str, str], error: str) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidRequest, match=error):
        RowsReader(BOUNDS).read(io.BytesIO(), options)
