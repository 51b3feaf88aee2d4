"""Figures and their ratios."""

import pytest

from bench.report import Figure, percentile


@pytest.mark.parametrize(
    ("figure", "ratio"),
    [
        (Figure("reads/s", 50.0, 100.0, "1/s"), 0.5),
        (Figure("wait", 4.0, 1.0, "ms", lower_is_better=True), 0.25),
        (Figure("alone", 4.0, None, "ms"), None),
        (Figure("too short to see", 0.0, 1.0, "ms", lower_is_better=True), None),
    ],
)
def test_ratio_of_one_is_as_good_as_the_ceiling(figure: Figure, ratio: float | None) -> None:
    """Whether the unit is better high or low; without a ceiling there is none."""
    assert figure.ratio == ratio


def test_line_shows_the_ceiling_the_ratio_and_the_target() -> None:
    """In one line, with thousands apart."""
    line = Figure("reads/s", 1500.0, 3000.0, "1/s", target=0.3).line()
    assert line.split() == ["reads/s", "1,500", "1/s", "ceiling", "3,000", "ratio", "0.50", "(target", "0.30)"]


def test_percentile_of_one_value_is_that_value() -> None:
    """And of several it lies between the two nearest."""
    assert percentile([7.0], 99) == 7.0
    assert percentile([float(n) for n in range(101)], 99) == 99.0
