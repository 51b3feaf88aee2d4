"""A few lines in each second, and how many were left out."""

from turnwire.ports.telemetry.line_limit import LINES_A_SECOND, LineLimit


def test_the_lines_of_a_second_are_counted_anew() -> None:
    """The next line after a flood tells how many were left out; nothing is told twice."""
    now = [0.5]
    limit = LineLimit(lambda: now[0])
    assert [limit.take() for _ in range(LINES_A_SECOND + 7)] == [0] * LINES_A_SECOND + [None] * 7
    now[0] = 0.99
    assert limit.take() is None
    now[0] = 1.0
    assert [limit.take(), limit.take()] == [8, 0]


def test_what_was_left_out_is_told_after_any_pause() -> None:
    """Seconds without a line forget nothing."""
    now = [0.0]
    limit = LineLimit(lambda: now[0], lines_a_second=1)
    assert [limit.take(), limit.take()] == [0, None]
    now[0] = 1_000.0
    assert limit.take() == 1
