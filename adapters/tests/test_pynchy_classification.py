"""Every row of a pynchy file is what its sender says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire_adapters.importers.pynchy.rows import TRACES as KINDS
from turnwire_adapters.importers.pynchy.rows import Classification, classify

USER, ASSISTANT, SYSTEM, HOST, TOOL_RESULT = "user", "assistant", "system", "host", "tool_result"
NAMES = frozenset({"Pynchy", "host-bot"})


@pytest.mark.parametrize(
    ("sender", "content", "type_", "metadata"),
    [
        ("4915112345@s.whatsapp.net", "hello", USER, None),
        ("tui-user", "hello", USER, None),
        ("deploy", "Deployed", USER, None),
        ("somebody else", "", USER, None),
        (None, "hello", USER, None),
        ("", "hello", USER, None),
        ("4915112345@s.whatsapp.net", "✅ Command output (exit 1):\n```\nx\n```", USER, None),
        ("4915112345@s.whatsapp.net", "[host] I am not", USER, None),
        ("bot", "Pynchy: hello", ASSISTANT, None),
        ("Pynchy", "hello", ASSISTANT, None),
        ("pynchy", "only exact names count", USER, None),
        ("host", "[host] restarted", HOST, None),
        ("host", "", HOST, None),
        ("Host", "only exact names count", USER, None),
        ("command_output", "✅ Command output (exit 0):\n```\nx\n```", TOOL_RESULT, {"exit_code": 0}),
        ("command_output", "❌ Command output (exit 127):\n```\nx\n```", TOOL_RESULT, {"exit_code": 127}),
        ("command_output", "❌ Command output (exit -9):\n```\nx\n```", TOOL_RESULT, {"exit_code": -9}),
        ("command_output", "✅\ufe0f Command output (exit 0):", TOOL_RESULT, {"exit_code": 0}),
        ("command_output", "✅ Command output:\n```\nx\n```", TOOL_RESULT, {"failed": False}),
        ("command_output", "❌ Command output:\n```\nx\n```", TOOL_RESULT, {"failed": True}),
        ("command_output", "❌ Command output (exit ٣):", TOOL_RESULT, None),
        ("command_output", "x\n✅ Command output (exit 0):", TOOL_RESULT, None),
        ("command_output", "", TOOL_RESULT, None),
        ("system", "[system] Restarted", USER, {"legacy_kind": "system"}),
        ("system", '{"subtype":"init","data":{}}', USER, {"legacy_kind": "system"}),
        ("thinking", '{"thinking":"hm"}', USER, {"legacy_kind": "thinking"}),
        ("tool_use", '{"tool_name":"Bash"}', USER, {"legacy_kind": "tool_use"}),
        ("tool_use", '{"tool_name":', USER, {"legacy_kind": "tool_use"}),
        ("tool_result", "{}", USER, {"legacy_kind": "tool_result"}),
        ("result_meta", '{"cost":1}', USER, {"legacy_kind": "result_meta"}),
    ],
)
def test_sender_decides(sender: str | None, content: str, type_: str, metadata: object) -> None:
    """Type and metadata of each kind of row."""
    what = classify(sender, content, NAMES)
    assert what.type == type_
    stored = what.metadata
    assert (None if stored is None else json.loads(stored)) == metadata


@pytest.mark.parametrize(
    ("sender", "type_", "kind"),
    [
        ("system", SYSTEM, None),
        ("thinking", ASSISTANT, "thinking"),
        ("tool_use", ASSISTANT, "tool_use"),
        ("tool_result", TOOL_RESULT, "tool_result"),
        ("result_meta", ASSISTANT, "result_meta"),
    ],
)
def test_reclassified_rows_have_their_true_type(sender: str, type_: str, kind: str | None) -> None:
    """A trace stays a trace; a notice becomes a message."""
    assert classify(sender, "{}", reclassify=True) == Classification(
        type=type_, facts={"legacy_kind": kind} if kind else {}
    )


def test_first_rule_that_fits_decides() -> None:
    """A bot may have any name; those of the first two rules are taken."""
    names = frozenset({"host", "command_output", "thinking"})
    assert classify("host", "", names).type == HOST
    assert classify("command_output", "", names).type == TOOL_RESULT
    assert classify("thinking", "", names) == Classification(type=ASSISTANT)


@given(st.text(), st.text(), st.booleans())
def test_any_other_sender_is_a_user(sender: str, content: str, reclassify: bool) -> None:
    """Whatever is written, with either switch."""
    known = {"host", "command_output", "bot", *NAMES, *KINDS}
    if sender not in known:
        assert classify(sender, content, NAMES, reclassify=reclassify) == Classification(type=USER)


@given(st.sampled_from(["host", "command_output", "bot", "Pynchy", "tui-user", None, *KINDS]), st.text())
def test_switch_changes_notices_and_traces_alone(sender: str | None, content: str) -> None:
    """All other rows are the same with and without it."""
    if sender not in KINDS:
        assert classify(sender, content, NAMES) == classify(sender, content, NAMES, reclassify=True)


@given(st.integers(-(10**10) + 1, 10**10 - 1), st.sampled_from("✅❌"), st.text())
def test_exit_code_counts_more_than_the_mark(code: int, mark: str, output: str) -> None:
    """A mark that disagrees changes nothing."""
    what = classify("command_output", f"{mark} Command output (exit {code}):\n```\n{output}\n```")
    assert what == Classification(type=TOOL_RESULT, facts={"exit_code": code})
