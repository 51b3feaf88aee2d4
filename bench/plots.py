"""`python -m bench.plots FIGURES.json FOLDER`: draws what `python -m bench --save FIGURES.json` has measured, as SVG.

Draws those of these plots whose figures are in the file: `targets.svg`, `neighbours.svg`, `growth.svg` and
`endurance.svg`.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pygal
from pygal.style import Style

Rows = Sequence[dict[str, Any]]

_STYLE = Style(
    background="white",
    plot_background="white",
    font_family="sans-serif",
    colors=("#2f6f9f", "#c8553d", "#7a9e7e", "#8f6bb3", "#d9a441", "#4d4d4d"),
    title_font_size=15,
    label_font_size=11,
    major_label_font_size=11,
    legend_font_size=12,
    value_font_size=11,
)
_NEIGHBOUR = re.compile(r"(.*): neighbour's (.*)")
_PERIOD = re.compile(r"\s*p99 in period (\d+) of \d+")


def main() -> int:
    """Draws the plots. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.plots", description=__doc__)
    parser.add_argument("figures", type=Path, metavar="FIGURES.json")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    rows: Rows = json.loads(arguments.figures.read_text())
    plots: dict[str, Callable[[Rows], Any]] = {
        "targets": targets,
        "neighbours": neighbours,
        "growth": growth,
        "endurance": endurance,
    }
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, draw in plots.items():
        if (plot := draw(rows)) is not None:
            path = arguments.folder / f"{name}.svg"
            path.write_bytes(plot.render())
            print(path)
    return 0


def targets(rows: Rows) -> Any:
    """Returns how near each figure with a target comes to it: 1 reaches it, on a scale that ends at 4."""
    reached = list[tuple[str, float]]()
    for row in rows:
        if row["target"] is not None and row["ratio"] is not None:
            share = row["ratio"] / row["target"]
        elif row["wanted"] and row["value"]:
            share = row["wanted"] / row["value"] if row["lower_is_better"] else row["value"] / row["wanted"]
        else:
            continue
        reached.append((f"{row['measurement']}: {row['name'].strip()}", min(4.0, share)))
    if not reached:
        return None
    reached.sort(key=lambda one: -one[1])  # drawn from below
    chart = _chart(pygal.HorizontalBar, "Share of the target (1 reaches it; cut at 4)", len(reached))
    chart.x_labels = [name for name, _ in reached]
    chart.add("reached", [share if share >= 1 else None for _, share in reached])
    chart.add("short", [share if share < 1 else None for _, share in reached])
    return chart


def neighbours(rows: Rows) -> Any:
    """Returns the 99th percentile of what a neighbour waits, by what happens beside it."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        if (match := _NEIGHBOUR.fullmatch(row["name"])) and match[2].endswith("p99"):
            found.setdefault(match[1].strip(), {})[match[2]] = (row["value"], row["ceiling"])
    if not found:
        return None
    chart = _chart(pygal.HorizontalBar, "What a neighbour waits, 99th percentile, milliseconds", 4 * len(found))
    kinds = _unique(kind for one in found.values() for kind in one)
    alone = {kind: next(one[kind][1] for one in found.values() if kind in one) for kind in kinds}
    cases = list(reversed(found))  # drawn from below
    chart.x_labels = [*cases, "nothing beside it"]
    for kind in kinds:
        waited = [found[case].get(kind, (None,))[0] for case in cases]
        chart.add(kind.removesuffix(" p99"), [*waited, alone[kind]])
    return chart


def growth(rows: Rows) -> Any:
    """Returns what a large file or session costs as a multiple of a small one: 1 does not grow."""
    found = {
        row["name"].strip(): row["value"] / row["ceiling"]
        for row in rows
        if row["measurement"] == "growth" and row["ceiling"]
    }
    if not found:
        return None
    chart = _chart(pygal.HorizontalBar, "CPU as a multiple of that in a small file or session", 2 + len(found))
    chart.x_labels = list(reversed(found))  # drawn from below
    chart.add("multiple", [found[name] for name in chart.x_labels])
    chart.range = (0, max(2.0, *found.values()))
    return chart


def endurance(rows: Rows) -> Any:
    """Returns the 99th percentile of a delta's waiting by period of a long run."""
    periods = {int(match[1]): row["value"] for row in rows if (match := _PERIOD.fullmatch(row["name"]))}
    if not periods:
        return None
    chart = _chart(pygal.Line, "500 turns at 50 deltas a second: 99th percentile by period, milliseconds", 12)
    chart.x_labels = [str(number) for number in sorted(periods)]
    chart.add("p99", [periods[number] for number in sorted(periods)])
    return chart


def _chart(kind: Any, title: str, lines: int) -> Any:
    return kind(
        title=title,
        style=_STYLE,
        width=900,
        height=max(320, 120 + 22 * lines),
        js=(),  # no script, and nothing from elsewhere
        legend_at_bottom=True,
        disable_xml_declaration=False,
        no_prefix=True,
    )


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    sys.exit(main())
