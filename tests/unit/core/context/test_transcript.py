"""A conversation as text for whoever summarises it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_answer, make_message, make_part
from turnwire.core.context.transcript import chunks, shorten, transcript
from turnwire.core.token_estimate import text_tokens
from turnwire.domain.conversation.messages import (
    Compaction,
    File,
    MessageType,
    Reasoning,
    ToolResult,
    ToolStatus,
    ToolUse,
)

NOTES = File(sha256="ab", size_bytes=5000, mime="text/plain", filename="notes.txt")
IMAGE = File(sha256="cd", size_bytes=9, mime="image/png")


def test_words_stand_in_full_and_the_rest_is_shortened() -> None:
    """Arguments, results and files are; reasoning is left out."""
    call = ToolUse(name="read", input_json="a" * 5000, status=ToolStatus.SUCCESS, output="o" * 9000, files=(IMAGE,))
    failed = ToolUse(name="read", status=ToolStatus.ERROR, error="no such file")
    said, answered, result = transcript(
        [
            make_message("u", "w" * 9000, NOTES),
            make_answer("a", make_part(0, Reasoning("secret"), provider_state="{}"), call, failed),
            make_message("r", ToolResult(call_id="c1", output="late"), type=MessageType.TOOL_RESULT),
        ],
        {"ab": b"n" * 5000},
    )
    assert "w" * 9000 in said
    assert "file notes.txt (text/plain, 5000 bytes): nnn" in said
    assert len(said) < 12_000
    assert "secret" not in answered
    assert "[called read with aaa" in answered
    assert "[result: ooo" in answered
    assert "[error: no such file]" in answered
    assert "[file without name (image/png, 9 bytes)]" in answered
    assert len(answered) < 4000
    assert result == "Tool:\n[result of call c1: late]"


def test_a_failed_command_tells_its_exit_code() -> None:
    """Also when its call has no id."""
    failed = ToolResult(call_id="", output="no", is_error=True, exit_code=2)
    assert transcript([make_message("r", failed, type=MessageType.TOOL_RESULT)], {}) == (
        "Tool:\n[error of a call, exit code 2: no]",
    )


def test_missing_bytes_are_named() -> None:
    """A file that is gone leaves its name."""
    [entry] = transcript([make_message("u", NOTES)], {})
    assert entry == "User:\n[file notes.txt (text/plain, 5000 bytes)]"


def test_an_earlier_summary_is_taken_as_it_is() -> None:
    """It is what is left of what it covers."""
    compaction = Compaction(through_message_id="m", message_count=1, tokens_before=1, tokens_after=1)
    assert transcript([make_message("s", "so far", compaction=compaction)], {}) == ("so far",)


@pytest.mark.parametrize(("text", "limit"), [("a" * 100, 100), ("a" * 101, 100), ("", 0)])
def test_only_what_is_longer_is_shortened(text: str, limit: int) -> None:
    """Head and tail stay, and the gap is told."""
    short = shorten(text, limit)
    assert (short == text) == (len(text) <= limit)
    assert len(text) <= limit or "[1 characters left out]" in short


@given(st.lists(st.text(min_size=1, max_size=400), max_size=12), st.integers(50, 300))
def test_chunks_hold_all_entries_in_order_and_fit(entries: list[str], max_tokens: int) -> None:
    """Those that alone are too long are cut; none is empty."""
    made = list(chunks(entries, max_tokens))
    assert all(text_tokens(chunk) <= max_tokens + len(entries) for chunk in made)
    whole = [entry for entry in entries if text_tokens(entry) <= max_tokens]
    joined, at = "\n\n".join(made), 0
    for entry in whole:
        at = joined.index(entry, at)
    assert bool(made) == bool(entries)
