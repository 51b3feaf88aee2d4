"""Foreign text on a terminal."""

import pytest

from turnwire.cli.visible_text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jclear", "[2Jclear"),
        ("\x1b]0;title\x07x", "]0;titlex"),
        ("\x9b2Jc\x7f", "2Jc"),
        ("over\rwritten", "overwritten"),
        ("rm \u202e'yrros' on.txt\u2066", "rm 'yrros' on.txt"),
        ("a\tb\n日本語 שלום 👩‍👩‍👧", "a\tb\n日本語 שלום 👩‍👩‍👧"),
    ],
)
def test_foreign_text_cannot_steer_or_reorder(text: str, shown: str) -> None:
    """Line feeds, tabs and all scripts stay."""
    assert visible(text) == shown
