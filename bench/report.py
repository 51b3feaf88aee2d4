"""Prints figures and their ceilings as lines of text."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value and the best possible one."""

    name: str
    value: float
    ceiling: float | None
    """The same measured without Turnwire; None when there is nothing to compare with."""
    unit: str
    lower_is_better: bool = False
    target: float | None = None
    """The target ratio."""

    @property
    def ratio(self) -> float | None:
        """How close the value is to its ceiling: 1 is as good as the ceiling, in either direction of the unit."""
        if self.ceiling is None or not self.value or not self.ceiling:
            return None
        return self.ceiling / self.value if self.lower_is_better else self.value / self.ceiling

    def line(self) -> str:
        """Returns the figure as one line."""
        line = f"  {self.name:<46} {_number(self.value):>10} {self.unit:<10}"
        if self.ceiling is not None:
            line += f" ceiling {_number(self.ceiling):>10}"
        if self.ratio is not None:
            line += f"  ratio {self.ratio:.2f}"
        if self.target is not None:
            line += f" (target {self.target:.2f})"
        return line


def title(name: str, description: str) -> None:
    """Prints what is measured next."""
    print(f"\n{name}: {description}", flush=True)


def show(figures: Iterable[Figure]) -> None:
    """Prints figures."""
    for figure in figures:
        print(figure.line(), flush=True)


def note(text: str) -> None:
    """Prints a remark about the figures."""
    print(f"  {text}", flush=True)


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns a percentile.

    Args:
        values: At least one, in any order.
        percent: From 1 to 99.
    """
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def median(values: Iterable[float]) -> float:
    """Returns the median, which one slow round on a busy machine does not change."""
    return statistics.median(values)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
