"""Stored text loses what old rows put around it, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire_adapters.importers.pynchy.rows import plain_text

NAMES = frozenset({"Pynchy", "Pynchy: the bot"})


@pytest.mark.parametrize(
    ("sender", "content", "text"),
    [
        ("host", "[host] restarted", "restarted"),
        ("host", "restarted", "restarted"),
        ("host", "[host]", "[host]"),
        ("bot", "Pynchy: hello", "hello"),
        ("bot", "Pynchy: the bot: hello", "hello"),
        ("bot", "Ada: hello", "hello"),
        ("bot", "Somebody: said so", "Somebody: said so"),
        ("Pynchy", "Pynchy: Pynchy: twice", "Pynchy: twice"),
        ("system", "[system] Restarted", "Restarted"),
        ("system", '{"subtype":"init"}', '{"subtype":"init"}'),
        ("thinking", '{"thinking":"[host] x"}', '{"thinking":"[host] x"}'),
        ("tui-user", "✅ Command output (exit 0):\n```\nx\n```", "✅ Command output (exit 0):\n```\nx\n```"),
        ("tui-user", "[host] x", "[host] x"),
        (None, "Pynchy: x", "Pynchy: x"),
        ("command_output", "✅ Command output (exit 0):\n```\none\ntwo\n```", "one\ntwo"),
        ("command_output", "✅ Command output (exit 0):\n```one```", "one"),
        ("command_output", "❌ Command output:\n```\none\n```", "one"),
        ("command_output", "❌ Command output (exit 2):\none", "one"),
        ("command_output", "❌ Command output (exit 2): one", "one"),
        ("command_output", "❌ Command output (exit 2):", ""),
        ("command_output", "❌ Command output (exit 2):\n```", "```"),
        ("command_output", "❌ Command output (exit 2):\n```\n\n```", ""),
        ("command_output", "one", "one"),
    ],
)
def test_decoration_is_taken_off(sender: str | None, content: str, text: str) -> None:
    """Once, and only that of the sender."""
    assert plain_text(sender, content, NAMES, sender_name="Ada") == text


@given(st.text())
def test_output_is_kept_to_the_letter(output: str) -> None:
    """Fences, line feeds and marks inside an output stay."""
    assert plain_text("command_output", f"✅ Command output (exit 0):\n```\n{output}\n```") == output


@given(st.sampled_from(["tui-user", "deploy", "thinking", "result_meta", None]), st.text())
def test_text_of_others_is_never_touched(sender: str | None, content: str) -> None:
    """It may look like anything."""
    assert plain_text(sender, content, NAMES) == content
