"""Prints figures with their ceilings and targets as lines of text, and keeps them for the end of a run."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


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
    """The wanted ratio."""
    wanted: float | None = None
    """The wanted value, in the unit."""

    @property
    def ratio(self) -> float | None:
        """Share of the ceiling that the value reaches: 1 is as good, in either direction of the unit."""
        if self.ceiling is None or not self.value or not self.ceiling:
            return None
        return self.ceiling / self.value if self.lower_is_better else self.value / self.ceiling

    @property
    def falls_short(self) -> bool:
        """Whether a target is missed."""
        if self.target is not None and self.ratio is not None and self.ratio < self.target:
            return True
        if self.wanted is None:
            return False
        return self.value > self.wanted if self.lower_is_better else self.value < self.wanted

    def line(self) -> str:
        """Returns the figure as one line."""
        line = f"  {self.name:<46} {_number(self.value):>10} {self.unit:<10}"
        if self.ceiling is not None:
            line += f" ceiling {_number(self.ceiling):>10}"
        if self.ratio is not None:
            line += f"  ratio {self.ratio:.2f}"
        if self.target is not None:
            line += f" (target {self.target:.2f})"
        if self.wanted is not None:
            line += f"  wanted {'at most' if self.lower_is_better else 'at least'} {_number(self.wanted)}"
        return line + ("  SHORT" if self.falls_short else "")


@dataclass(frozen=True)
class Row:
    """A figure and the measurement that it belongs to."""

    measurement: str
    figure: Figure


class _Run:
    """Measurements of one run of the benchmark."""

    def __init__(self) -> None:
        self.measurement = ""
        self.rows: list[Row] = []


_run = _Run()


def title(name: str, description: str) -> None:
    """Prints what is measured next."""
    _run.measurement = name
    print(f"\n{name}: {description}", flush=True)


def show(figures: Iterable[Figure]) -> None:
    """Prints figures and keeps them for `summarize` and `save`."""
    for figure in figures:
        _run.rows.append(Row(_run.measurement, figure))
        print(figure.line(), flush=True)


def row(text: str, figures: Iterable[Figure]) -> None:
    """Prints figures as one line of their own form, and keeps them."""
    _run.rows += [Row(_run.measurement, figure) for figure in figures]
    print(f"  {text}", flush=True)


def note(text: str) -> None:
    """Prints a remark about the figures."""
    print(f"  {text}", flush=True)


def summarize() -> None:
    """Prints how many of the figures shown have a target, and each that misses it."""
    aimed = [row for row in _run.rows if row.figure.target is not None or row.figure.wanted is not None]
    short = [row for row in aimed if row.figure.falls_short]
    print(f"\n{len(aimed) - len(short)} of {len(aimed)} figures with a target reach it.", flush=True)
    for row in short:
        print(f"  {row.measurement}: {row.figure.line().strip()}", flush=True)


def save(path: Path) -> None:
    """Writes the figures shown so far as JSON: a list of objects with the fields of `Figure` and `measurement`."""
    rows = [{"measurement": row.measurement, **asdict(row.figure), "ratio": row.figure.ratio} for row in _run.rows]
    path.write_text(json.dumps(rows, indent=1) + "\n")


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
