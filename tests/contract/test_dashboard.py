"""The dashboard and the alarms query metrics that exist, and show every metric that the server has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from turnwire.telemetry.metrics.instruments import Instruments

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "examples/grafana/turnwire.json").read_text())
RULES = (ROOT / "examples/prometheus/rules.yaml").read_text()

LEFT_OUT = {
    "process_virtual_memory_bytes": "says little about a process that maps its database",
    "process_start_time_seconds": "the version panel shows whether the server is there",
}
"""Metrics without a panel, and why."""

OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that Prometheus or its histograms add."""


def _panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def _queries() -> list[str]:
    variables = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]
    return [target["expr"] for panel in _panels() for target in panel["targets"]] + variables


def _alarms() -> list[str]:
    found = re.findall(r"^        expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", RULES, re.MULTILINE)
    return [block or line for block, line in found]


def _metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:turnwire|process)_\w+", query))


@pytest.fixture(scope="module")
def families() -> list[Metric]:
    """Everything that a server shows, whether it has values or not."""
    disable_created_metrics()
    return list(text_string_to_metric_families(generate_latest(Instruments().registry).decode()))


def _series(family: Metric) -> set[str]:
    match family.type:
        case "counter":
            return {f"{family.name}_total"}
        case "histogram":
            return {f"{family.name}_{end}" for end in ("bucket", "sum", "count")}
    return {family.name}


def test_every_query_is_of_metrics_that_exist(families: list[Metric]) -> None:
    """In the dashboard and in the alarms."""
    there = {name for family in families for name in _series(family)}
    queries = [*_queries(), *_alarms()]
    assert len(_alarms()) == RULES.count("- alert: ") > 5
    assert {name for query in queries for name in _metrics_in(query)} - there == set()


def test_every_metric_has_a_panel(families: list[Metric]) -> None:
    """Or is left out for a reason."""
    queried = {name for query in _queries() for name in _metrics_in(query)}
    without = {family.name for family in families if not _series(family) & queried}
    assert without == set(LEFT_OUT)


def test_every_label_of_a_query_is_a_label_of_its_metrics() -> None:
    """A query by another label finds nothing and says nothing."""
    for query in [*_queries(), *_alarms()]:
        series = re.sub(r"_(bucket|sum|count)\b", "", query)
        found = {label for family in Instruments().families if family.name in series for label in family.labels}
        grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
        selected = set(re.findall(r"[{,]\s*(\w+)\s*!?=", query))
        assert grouped | selected <= found | OF_PROMETHEUS
        assert query.count("(") == query.count(")") and query.count("{") == query.count("}")


def test_the_dashboard_can_be_imported() -> None:
    """Panels have ids and places of their own, a title, what they mean, and the data source that is chosen."""
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    for panel in _panels():
        assert panel["title"] and panel["description"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    """And the configuration that names them."""
    folder = ROOT / "examples/prometheus"
    for arguments in (("rules", "rules.yaml"), ("config", "prometheus.yaml")):
        done = subprocess.run(
            ["promtool", "check", *arguments], cwd=folder, check=False, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr
