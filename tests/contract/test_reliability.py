"""docs/reliability.md names the test of each promise, and no test of a fault is missing there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/reliability.md"
ROW = re.compile(r"^\| (?!fault \||---)(.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Returns the cells of each row of the tables."""
    return [row.split(" | ") for row in ROW.findall(PAGE.read_text("utf-8"))]


def names_in(path: Path) -> set[str]:
    """Returns the names of a file's tests."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def test_every_fault_has_a_promise_and_tests_that_exist() -> None:
    """Three cells: the fault, the promise, and at least one test, written as `folder/file.py::name` below tests/."""
    assert rows()
    for row in rows():
        assert len(row) == 3, row
        assert NAMED.search(row[2]), row
        for file, name in NAMED.findall(row[2]):
            assert name in names_in(TESTS / file), f"{file}::{name}"


def test_every_file_of_faults_is_in_the_table() -> None:
    """A test of a fault that promises nothing is worth little."""
    named = {file for row in rows() for file, _ in NAMED.findall(row[2])}
    assert {f"fault/{path.name}" for path in (TESTS / "fault").glob("test_*.py")} - named == set()


def test_long_faults_are_in_their_folder() -> None:
    """`make test-fault` looks nowhere else."""
    marked = [path for path in TESTS.rglob("test_*.py") if "mark.fault_" + "long" in path.read_text("utf-8")]
    assert [path for path in marked if path.parent.name != "fault"] == []
