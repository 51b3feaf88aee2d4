"""docs/migrating.md: every row of its tables names a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/migrating.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
ROWS = re.findall(r"^\| (.+) \| (.+) \| `([\w/]+\.py)::(\w+)` \|$", TEXT, re.MULTILINE)


PROMISED = {
    "OpenCode desktop": (
        "fixed contract", "`messageInfo.schema.json`", "`messagePart.schema.json`", "streaming flow",
        "aborts twice, 200 ms apart", "answers permissions after an abort", "`finish` null", "`message_updated`",
        "`message_part_updated`", "`SendMessage`", "`GetMessages`", "`AbortSession`", "`CreateSession`",
        "`ListSessions`", "`UpdateSessionDirectory`", "`DeleteSession`", "`GetProviders`", "`ListAgents`",
        "`RespondToPermission`", "`ToolCallState`",
    ),
}  # fmt: skip
"""What the users of each system were promised, in the words of their first column or of the second."""


@pytest.mark.parametrize("section", PROMISED)
def test_what_a_system_promised_has_a_row(section: str) -> None:
    """Every function, field and event, beside the test that proves it."""
    rows = re.findall(r"^\| (.+ \| .+) \| `[\w/]+\.py::\w+` \|$", SECTIONS[section], re.MULTILINE)
    table = "\n".join(rows)
    assert [words for words in PROMISED[section] if words not in table] == []


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
