"""Stored rows of ikigai."""

import functools
import json
import math
from typing import Any

import pytest

from turnwire.domain.errors import InvalidRequest
from turnwire.interop.ikigai import (
    assistant_message,
    draft_of,
    drafts_of,
    redacted_thinking,
    text,
    thinking,
    tool_call,
    tool_message,
    tool_result,
    user_message,
)


def _row(kind: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "data_json": json.dumps(data)}


def test_text_rows_are_messages() -> None:
    """Of a person and of a model."""
    assert draft_of({"kind": "user", "content": "hi"}) == user_message(text("hi"))
    assert draft_of({"kind": "assistant", "content": ""}) == assistant_message(text(""))


@pytest.mark.parametrize("name", ["tool_name", "name"])
@pytest.mark.parametrize("arguments", ["tool_args", "arguments"])
def test_both_spellings_of_a_call_are_read(name: str, arguments: str) -> None:
    """Alone and mixed; arguments stay as they are written."""
    row = _row("tool_call", tool_call_id="c", **{name: "bash", arguments: '{ "a":1}'})
    assert draft_of(row) == assistant_message(tool_call("c", "bash", '{ "a":1}'))


def test_thinking_comes_before_its_call() -> None:
    """With its signature, and redacted thinking behind it."""
    row = _row(
        "tool_call", tool_call_id="c", tool_name="bash", tool_args="{}",
        thinking={"text": "hm", "signature": "sig"}, redacted_thinking={"data": "EmwK"},
    )  # fmt: skip
    expected = assistant_message(thinking("hm", "sig"), redacted_thinking("EmwK"), tool_call("c", "bash", "{}"))
    assert draft_of(row) == expected
    unsigned = _row("tool_call", tool_call_id="c", tool_name="bash", tool_args="{}", thinking={"text": "hm"})
    assert draft_of(unsigned) == assistant_message(thinking("hm"), tool_call("c", "bash", "{}"))


@pytest.mark.parametrize("kind", ["tool_result", "tool"])
@pytest.mark.parametrize(("success", "is_error"), [({"success": True}, False), ({"success": False}, True), ({}, False)])
def test_results_fail_without_success(kind: str, success: dict[str, bool], is_error: bool) -> None:
    """Absent means no error."""
    row = _row(kind, tool_call_id="c", output="out", **success)
    assert draft_of(row) == tool_message(tool_result("c", "out", is_error))


@pytest.mark.parametrize("kind", ["system", "clear", "mark", "rewind"])
def test_some_kinds_give_no_message(kind: str) -> None:
    """Whatever is in them; the rows around them stay in order."""
    rows = [{"kind": "user", "content": "a"}, {"kind": kind, "content": "x"}, {"kind": "assistant", "content": "b"}]
    assert drafts_of(rows) == [user_message(text("a")), assistant_message(text("b"))]


def test_metadata_travels() -> None:
    """As the object that it is."""
    row = {"kind": "user", "content": "a", "provider_metadata": {"response_id": "r"}}
    assert draft_of(row) == user_message(text("a"), provider_metadata={"response_id": "r"})


CALL = {"tool_call_id": "c", "tool_name": "bash", "tool_args": "{}"}
DEEP = functools.reduce(lambda inner, _: {"x": inner}, range(100_000), dict[str, Any]())


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({}, "row.kind: is missing"),
        ({"kind": "note", "content": "a"}, "row.kind: 'note' is unknown"),
        ({"kind": "user"}, "row.content: is missing in a message of kind user"),
        ({"kind": "assistant", "content": None}, "row.content: is missing in a message of kind assistant"),
        ({"kind": "user", "content": 7}, "row.content: must be text, not a number"),
        ({"kind": "tool_call"}, "row.data_json: is missing in a message of kind tool_call"),
        ({"kind": "tool_result", "data_json": None}, "row.data_json: is missing in a message of kind tool_result"),
        ({"kind": "tool", "data_json": "{"}, "row.data_json: is not JSON"),
        ({"kind": "tool", "data_json": '{"a": ' + "9" * 5_000 + "}"}, "row.data_json: is not JSON"),
        ({"kind": "tool_call", "data_json": "[" * 100_000}, "row.data_json: is not JSON"),
        ({"kind": "tool_call", "data_json": f'{{"tool_call_id": {"1" * 5000}}}'}, "row.data_json: is not JSON"),
        ({"kind": "tool_call", "data_json": "[]"}, "row.data_json: must be an object, not an array"),
        (_row("tool_call", tool_name="bash", tool_args="{}"), "row.data_json.tool_call_id: is missing"),
        (_row("tool_call", tool_call_id="c", tool_args="{}"), "row.data_json.tool_name: is missing"),
        (_row("tool_call", tool_call_id="c", name="bash"), "row.data_json.tool_args: is missing"),
        (_row("tool_call", **{**CALL, "tool_call_id": 7}), "row.data_json.tool_call_id: must be text, not a number"),
        (_row("tool_call", **{**CALL, "tool_args": {}}), "row.data_json.tool_args: must be text, not an object"),
        (_row("tool_call", **CALL, thinking="hm"), "row.data_json.thinking: must be an object, not text"),
        (_row("tool_call", **CALL, thinking={}), "row.data_json.thinking.text: is missing"),
        (_row("tool_call", **CALL, thinking={"text": "a", "signature": 1}), "row.data_json.thinking.signature: must"),
        (_row("tool_call", **CALL, redacted_thinking={}), "row.data_json.redacted_thinking.data: is missing"),
        (_row("tool_result", output="a"), "row.data_json.tool_call_id: is missing"),
        (_row("tool_result", tool_call_id=7, output="a"), "row.data_json.tool_call_id: must be text, not a number"),
        (_row("tool_result", tool_call_id="c"), "row.data_json.output: is missing"),
        (_row("tool", tool_call_id="c", output="a", success="no"), "row.data_json.success: must be true or false"),
        ({"kind": "user", "content": "a", "provider_metadata": []}, "row.provider_metadata: must be an object"),
        ({"kind": "user", "content": "a", "provider_metadata": {"n": math.nan}}, "row.provider_metadata: is not JSON"),
        ({"kind": "user", "content": "a", "provider_metadata": {"n": b""}}, "row.provider_metadata: is not JSON"),
        ({"kind": "user", "content": "a", "provider_metadata": DEEP}, "row.provider_metadata: is not JSON"),
    ],
)
def test_refusals_say_what_is_wrong(row: dict[str, Any], error: str) -> None:
    """With the place; nothing is guessed."""
    with pytest.raises(InvalidRequest) as refused:
        draft_of(row)
    assert refused.value.message.startswith(error)


def test_one_bad_row_refuses_all() -> None:
    """The error names its number."""
    with pytest.raises(InvalidRequest, match=r"rows\[1\]\.kind: 'note' is unknown"):
        drafts_of([{"kind": "user", "content": "a"}, {"kind": "note"}])
