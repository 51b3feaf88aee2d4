"""Stored rows of ikigai as an archive."""

import io
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.tests import commands
from turnwire_adapters.importers.archive import MessageRecord, Record, SessionRecord
from turnwire_adapters.importers.ikigai import MadeBy, Rows
from turnwire_adapters.importers.problems import FileError, Problem

Json = dict[str, Any]
CALL = {"tool_call_id": "c1", "name": "bash", "arguments": "{}", "thinking": {"text": "hm", "signature": "sig"}}


def _row(number: int, kind: str, content: Any = None, session: Any = 1, **other: Any) -> dict[str, Any]:
    at = f"2026-01-31T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.25+00:00"
    return {"id": number, "session_id": session, "kind": kind, "content": content, "created_at": at, **other}


def _call(without: str = "", **other: Any) -> dict[str, Any]:
    return _row(1, "tool_call", data={name: value for name, value in {**CALL, **other}.items() if name != without})


def _read(rows: Iterable[Mapping[str, Any] | str | bytes], **options: Any) -> list[Record]:
    lines = [
        row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode() for row in rows
    ]
    return list(Rows(**options).records(io.BytesIO(b"\n".join(lines))))


def _one(found: list[Record]) -> tuple[Json, list[Json], list[bool]]:
    """Returns the only session, its messages, and which of them are hidden."""
    [session] = [record.session for record in found if isinstance(record, SessionRecord)]
    messages = [record for record in found if isinstance(record, MessageRecord)]
    return session, [record.message for record in messages], [record.hidden for record in messages]


def _contents(message: Json) -> list[Json]:
    return [part["content"] for part in message["parts"]]


def _shown(rows: list[Mapping[str, Any]]) -> list[str]:
    _, messages, hidden = _one(_read(rows))
    found = [_contents(message)[0] for message, is_hidden in zip(messages, hidden, strict=True) if not is_hidden]
    return [content["text"] if content["type"] == "text" else content["type"] for content in found]


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
    assert (session["title"], session["system"]) == ("1", "Be brief.")
    assert session["origin"] == {"system": "ikigai", "session_id": "1"}
    assert [session[name][17:25] for name in ("created_at", "updated_at")] == ["01.25000", "05.25000"]
    question, called, answer = messages
    assert [message["origin"]["message_id"] for message in messages] == ["2", "3", "5"]
    assert [message["metadata_json"] for message in (question, answer)] == [
        '{"provider_metadata":{"a":1}}', '{"provider_metadata":{"b":2}}',
    ]  # fmt: skip
    assert called["answers_message_id"] == answer["answers_message_id"] == question["message_id"]
    call = _contents(called)[1]
    assert (call["status"], call["output"], call["finished_at"][17:22]) == ("success", "a.py", "04.25")
    assert hidden == [False] * 3


def test_rows_come_as_their_table_has_them() -> None:
    """The data may be an object under the name of its column, an id text, a time have no offset; the rest is left."""
    row = {**_row(1, "tool_call", session="s"), "id": "x", "data": CALL, "agent_uuid": None, "created_at": "2026-01-31"}
    session, [message], _ = _one(_read([row]))
    assert datetime.fromisoformat(session["created_at"]).isoformat() == "2026-01-31T00:00:00+00:00"
    assert [content["type"] for content in _contents(message)] == ["reasoning", "tool_use"]


def test_conversations_follow_each_other() -> None:
    """Each is a session; blank lines between them say nothing."""
    rows = [_row(1, "user", "a", session=2), "", _row(2, "user", "b", session=2), _row(3, "clear", session="x")]
    sessions = [record.session for record in _read(rows) if isinstance(record, SessionRecord)]
    assert [session["title"] for session in sessions] == ["2", "x"]
    assert len({session["session_id"] for session in sessions}) == 2


def test_ids_follow_from_rows() -> None:
    """A second import finds what the first has stored, also when rows before have gone."""
    nameless = {**_row(3, "user", "c"), "id": None}
    rows = [_row(1, "user", "a"), _row(2, "tool_call", data_json=json.dumps(CALL)), nameless]
    _, messages, _ = _one(_read(rows))
    assert _one(_read(rows))[1] == messages
    assert len({message["message_id"] for message in messages}) == 3
    assert messages[2]["origin"]["message_id"] == ""
    without = _one(_read(rows[1:]))[1][0]
    assert without == {name: value for name, value in messages[1].items() if name != "answers_message_id"}


def test_another_key_names_conversations() -> None:
    """As the option says."""
    rows = [{**_row(1, "user", "a"), "agent": "u1"}, {**_row(2, "user", "b"), "agent": "u2"}]
    found = _read(rows, key="agent")
    assert [record.session["title"] for record in found if isinstance(record, SessionRecord)] == ["u1", "u2"]


def test_a_clear_hides_what_was_before() -> None:
    """A result of a cleared call stays a message, and the last prompt counts."""
    rows = [
        _row(1, "system", "old"), _row(2, "user", "a"), _row(3, "tool_call", data_json=json.dumps(CALL)),
        _row(4, "clear"), _row(5, "tool_result", data_json='{"tool_call_id": "c1", "output": "late"}'),
        _row(6, "user", "b"),
    ]  # fmt: skip
    assert _shown(rows) == ["tool_result", "b"]
    assert _one(_read(rows))[0]["system"] == "old"
    assert _one(_read([*rows, _row(7, "system", "new"), _row(8, "system", "new")]))[0]["system"] == "new"


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
    assert _contents(messages[-1]) == [{"type": "text", "text": "e"}]


@pytest.mark.parametrize("data", [None, "{", "[]", "{}", '{"target_message_id": true}', '{"target_message_id": 4}'])
def test_a_rewind_without_its_mark_is_reported(data: str | None) -> None:
    """It hides nothing. A clear has taken the marks with it."""
    rows = [
        _row(4, "mark"), _row(5, "clear"), _row(6, "user", "a"), _row(7, "rewind", data_json=data),
    ]  # fmt: skip
    assert _shown(rows) == ["a"]
    [problem] = [record for record in _read(rows) if isinstance(record, Problem)]
    assert (problem.reason, problem.line, problem.conversation) == ("MARK_UNKNOWN", 4, "1")


def test_answers_after_a_rewind_name_their_question() -> None:
    """Which is not one that was taken back."""
    rows = [
        _row(1, "user", "a"), _row(2, "mark"), _row(3, "user", "b"),
        _row(4, "rewind", data_json='{"target_message_id": 2}'), _row(5, "assistant", "c"),
    ]  # fmt: skip
    _, messages, _ = _one(_read(rows))
    assert messages[2]["answers_message_id"] == messages[0]["message_id"]


def test_calls_without_a_result_have_an_error() -> None:
    """Which says so."""
    _, [message], _ = _one(_read([_row(1, "tool_call", data_json=json.dumps(CALL))]))
    call = _contents(message)[1]
    assert (call["status"], call["error"]) == ("error", "The archive has no result of this call.")


def test_a_long_prompt_is_the_first_message() -> None:
    """Nothing of it is lost."""
    session, messages, _ = _one(_read([_row(1, "user", "a"), _row(2, "system", "x" * 70_000)]))
    assert "system" not in session
    assert [message["type"] for message in messages] == ["system", "user"]
    assert len({message["message_id"] for message in messages}) == 2


def test_kinds_are_left_out_as_asked() -> None:
    """The first of each is reported; without the option they are refused."""
    rows = [_row(1, "usage"), _row(2, "user", "a"), _row(3, "usage")]
    found = _read(rows, skip=frozenset({"fork", "usage"}))
    assert len(_one(found)[1]) == 1
    assert [(r.reason, r.line) for r in found if isinstance(r, Problem)] == [("ROW_LEFT_OUT", 1)]
    with pytest.raises(FileError, match="line 1: kind: 'usage' is unknown"):
        _read(rows)


def test_signatures_belong_to_the_named_model() -> None:
    """As options name it."""
    rows = [_row(1, "tool_call", data_json=json.dumps(CALL))]
    _, [message], _ = _one(_read(rows, made_by=MadeBy("p", "m", "anthropic")))
    assert message["model_run"] == {"provider_id": "p", "model_requested": "m"}
    assert json.loads(message["parts"][0]["provider_state"]) == {"api": "anthropic", "model": "m", "signature": "sig"}


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("", "holds no rows"),
        ("[]", "line 2: must be an object, not an array"),
        ('{"kind": "user", "con', "line 2: is not JSON"),
        (b'{"kind": "\xff"}', "line 2: is not JSON"),
        ('{"a":' * 1_000, "line 2: is not JSON"),
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
        (_row(1, "user", "a", provider_metadata="{"), "line 2: provider_metadata: is not JSON"),
        (_row(1, "user", "a", provider_metadata={"n": "\ud800"}), "line 2: provider_metadata: has half of a surrogate"),
        (_row(1, "note", "a"), "line 2: kind: 'note' is unknown"),
        (_row(1, "tool_result"), "line 2: data_json: is missing in a message of kind tool_result"),
        (_row(1, "tool", data_json="{"), "line 2: data_json: is not JSON"),
        (_row(1, "tool", data_json="[" * 100_000), "line 2: data_json: is not JSON"),
        (_row(1, "tool_call", data_json="[]"), "line 2: data_json: must be an object, not an array"),
        (_call(tool_call_id=None), "line 2: data_json.tool_call_id: must be text, not null"),
        (_call("name"), "line 2: data_json.tool_name: is missing"),
        (_call("arguments"), "line 2: data_json.tool_args: is missing"),
        (_call(arguments={}), "line 2: data_json.arguments: must be text, not an object"),
        (_call(thinking="hm"), "line 2: data_json.thinking: must be an object, not text"),
        (_call(thinking={}), "line 2: data_json.thinking.text: is missing"),
        (_call(thinking={"text": "a", "signature": 1}), "line 2: data_json.thinking.signature: must"),
        (_call(redacted_thinking={}), "line 2: data_json.redacted_thinking.data: is missing"),
        (_row(1, "tool", data={"tool_call_id": "c"}), "line 2: data_json.output: is missing"),
        (_row(1, "tool", data={"tool_call_id": "c", "output": "", "success": "no"}), "line 2: data_json.success: must"),
        (_row(1, "system", {"a": 1}), "line 2: content: must be text"),
    ],
)
def test_wrong_rows_are_refused(row: Any, error: str) -> None:
    """With the line and the key."""
    with pytest.raises(FileError) as found:
        _read(["", row])
    assert str(found.value).removeprefix("the file ").startswith(error)


def test_rows_that_do_not_stand_together_are_refused() -> None:
    """Otherwise one conversation would become two."""
    rows = [_row(1, "user", "a", session=1), _row(2, "user", "b", session=2), _row(3, "user", "c", session=1)]
    with pytest.raises(FileError, match="line 3: session_id: rows of this conversation came before"):
        _read(rows)


def test_wrong_rows_can_be_left_out() -> None:
    """And are told, with their lines; a conversation of wrong rows alone is none."""
    rows = [_row(1, "user", "a"), "{", _row(2, "user", 7), _row(3, "assistant", "b"), _row(4, "user", session=2)]
    found = _read(rows, skip_bad=True)
    _, messages, _ = _one(found)
    assert [_contents(message)[0]["text"] for message in messages] == ["a", "b"]
    assert sorted((r.line, r.reason, r.place) for r in found if isinstance(r, Problem)) == [
        (2, "ROW_LEFT_OUT", ""),
        (3, "ROW_LEFT_OUT", "content"),
        (5, "ROW_LEFT_OUT", "content"),
    ]


def test_many_marks_and_rewinds_cost_what_they_bring() -> None:
    """Each message is taken back once, however often rewinds go back to one mark: the work grows with the rows."""
    assert _lines_to_read_rewinds(1600) < 4.2 * _lines_to_read_rewinds(400)


def _lines_to_read_rewinds(count: int) -> int:
    """Returns how many lines of code read as many messages, each taken back to the first mark."""
    rows, lines = [_row(0, "mark")], 0
    for number in range(1, 3 * count, 3):
        back = _row(number + 2, "rewind", data={"target_message_id": 0})
        rows += [_row(number, "user", "a"), _row(number + 1, "mark"), back]

    def trace(_frame: Any, _event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _, messages, hidden = _one(_read(rows))
    finally:
        sys.settrace(before)
    assert (len(messages), all(hidden)) == (count, True)
    return lines


def test_both_spellings_of_a_call_are_read() -> None:
    """Alone and mixed; arguments stay as they are written; thinking comes first, as its model made it."""
    for name in ("tool_name", "name"):
        for arguments in ("tool_args", "arguments"):
            data = {"tool_call_id": "c", name: "bash", arguments: '{ "a":1}', "redacted_thinking": {"data": "EmwK"}}
            _, [message], _ = _one(_read([_row(1, "tool_call", data=data)]))
            sealed, call = _contents(message)
            assert sealed == {"type": "provider", "kind": "redacted_thinking"}
            assert (call["name"], call["call_id"], call["input_json"]) == ("bash", "c", '{ "a":1}')
            block = {"type": "redacted_thinking", "data": "EmwK"}
            assert json.loads(message["parts"][0]["provider_state"]) == {"block": block}


def test_a_second_result_of_a_call_stays_a_message() -> None:
    """A result of an unknown call does, too."""
    result = {"tool_call_id": "c1", "output": "no", "success": False}
    rows = [_row(1, "tool_call", data=CALL), _row(2, "tool", data=result), _row(3, "tool_result", data=result)]
    _, messages, _ = _one(_read(rows))
    assert [message["type"] for message in messages] == ["assistant", "tool_result"]
    call = _contents(messages[0])[1]
    assert (call["status"], call["error"], "output" in call) == ("error", "no", False)
    assert _contents(messages[1])[0]["is_error"] is True


def test_options_go_together(tmp_path: Path) -> None:
    """Before anything is read."""
    done = commands.run("import", "ikigai", "--model", "m", tmp_path / "none")
    assert (done.code, "go together" in done.stderr) == (2, True)
    done = commands.run("import", "ikigai", tmp_path / "none")
    assert (done.code, done.stderr.count("\n")) == (2, 1)
