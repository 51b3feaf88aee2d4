"""docs/migrating.md: every row of its tables names a test that is there, and its Python runs."""

import ast
import re
from pathlib import Path

import pytest

from turnwire.interop.plue.codes import CODES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/migrating.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
ROWS = re.findall(r"^\| (.+) \| (.+) \| `([\w/]+\.py)::(\w+)` \|$", TEXT, re.MULTILINE)


def test_every_row_has_a_test() -> None:
    """A row without one promises something that nothing proves."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and "| test |" not in line]
    with_tests = [line for line in lines if line.count(" | ") == 2 and "::" in line]
    assert len(with_tests) == len(ROWS)
    assert len(ROWS) >= 15


@pytest.mark.parametrize(("file", "name"), sorted({(file, name) for _, _, file, name in ROWS}))
def test_the_test_of_a_row_is_there(file: str, name: str) -> None:
    """Under the name that the row gives it."""
    tree = ast.parse((ROOT / "tests" / file).read_bytes())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(section: str) -> None:
    """What it imports is there, and its definitions are valid; end-to-end tests do what it shows."""
    for block in re.findall(r"^```python\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE):
        exec(compile(block, section, "exec"), {})


def test_codes_of_plue_are_those_of_the_table() -> None:
    """Each reason beside its code, and every reason; each code in one row."""
    rows = re.findall(r"^\| (-\d+) [A-Z_]+ \| (.+) \|$", SECTIONS["Plue"], re.MULTILINE)
    assert [int(code) for code, _ in rows] == sorted(set(CODES.values()), reverse=True)
    written = {reason: int(code) for code, reasons in rows for reason in re.findall(r"`([A-Z_]+)`", reasons)}
    assert written == CODES
