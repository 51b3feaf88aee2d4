"""Marks are added when messages are shown, and host messages never become a model's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire_adapters.importers.pynchy.presentation import NeverSent, model_role, rendered
from turnwire_adapters.importers.pynchy.rows import TRACES, Classification, classify, plain_text

USER, ASSISTANT, SYSTEM, HOST, TOOL_RESULT = "user", "assistant", "system", "host", "tool_result"


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        (Classification(type=USER), "x"),
        (Classification(type=ASSISTANT), "x"),
        (Classification(type=SYSTEM), "[system] x"),
        (Classification(type=HOST), "🏠 x"),
        (Classification(type=TOOL_RESULT, facts={"exit_code": 0}), "✅ Command output (exit 0):\n```\nx\n```"),
        (Classification(type=TOOL_RESULT, facts={"exit_code": -9}), "❌ Command output (exit -9):\n```\nx\n```"),
        (Classification(type=TOOL_RESULT, facts={"failed": False}), "✅ Command output:\n```\nx\n```"),
        (Classification(type=TOOL_RESULT, facts={"failed": True}), "❌ Command output:\n```\nx\n```"),
        (Classification(type=TOOL_RESULT), "Command output:\n```\nx\n```"),
    ],
)
def test_type_decides_how_a_message_is_shown(what: Classification, shown: str) -> None:
    """A command's output by its exit code, else by its mark."""
    assert rendered(what, "x") == shown


@pytest.mark.parametrize("output", ["```\nx\n```", "a\n`````\nb"])
def test_fence_is_longer_than_those_inside(output: str) -> None:
    """So that the output cannot leave it."""
    shown = rendered(Classification(type=TOOL_RESULT, facts={"exit_code": 0}), output)
    assert shown is not None
    fence = shown.splitlines()[1]
    assert set(fence) == {"`"}
    assert fence not in output
    assert shown.endswith(f"\n{output}\n{fence}")


@given(st.integers(0, 255), st.text().filter(lambda text: "```" not in text))
def test_output_is_shown_as_it_was_stored(code: int, output: str) -> None:
    """A row of the old form looks the same after its decoration was taken off."""
    content = f"{'❌' if code else '✅'} Command output (exit {code}):\n```\n{output}\n```"
    assert rendered(classify("command_output", content), plain_text("command_output", content)) == content


@pytest.mark.parametrize("type_", [USER, ASSISTANT, SYSTEM, TOOL_RESULT])
@pytest.mark.parametrize("kind", [*TRACES])
def test_what_is_no_conversation_is_neither_shown_nor_sent(type_: str, kind: TRACES) -> None:
    """Whatever its type."""
    what = Classification(type=type_, facts={"legacy_kind": kind})
    assert rendered(what, "x") is None
    assert model_role(what) is None


@pytest.mark.parametrize(
    ("type_", "role"), [(USER, "user"), (ASSISTANT, "assistant"), (SYSTEM, "system"), (TOOL_RESULT, "user")]
)
def test_model_is_sent_the_others(type_: str, role: str) -> None:
    """The output of a command as the user's, because no call of the model asked for it."""
    assert model_role(Classification(type=type_)) == role


def test_host_message_for_a_model_is_an_error() -> None:
    """Silence would hide a caller that forgot to leave it out."""
    with pytest.raises(NeverSent, match="never sent to a model"):
        model_role(Classification(type=HOST))
