"""Foreign text in one line."""

import pytest

from turnwire.domain.text import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [("gpt 5", "gpt 5"), ("größer", "größer"), ("a\nb", "a?b"), ("\x1b[31mred!", "?[31mred"), ("\u202eabc", "?abc")],
)
def test_a_line_stays_a_line(text: str, shown: str) -> None:
    """Nothing in it moves the cursor, ends the line or turns its direction; it is cut."""
    assert one_line(text, 8) == shown
