"""Which tools are taken, and what is said of the others."""

from types import SimpleNamespace

import pytest

from turnwire.tools.mcp import tool_list
from turnwire.tools.mcp.tool_list import ToolList
from turnwire.tools.mcp.wire import guard


def _tools(count: int, first: int = 0) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=f"t{first + n}", description="", input_schema={}) for n in range(count)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tools are the most."""
    monkeypatch.setattr(tool_list, "MAX_TOOLS", 2)


def test_all_tools_within_the_limit_are_no_problem() -> None:
    """On one page or several."""
    found = ToolList("x")
    assert found.add(_tools(1), "next")
    assert not found.add(_tools(1, 1), None)
    assert ([*found.tools], found.problem) == (["t0", "t1"], "")


@pytest.mark.parametrize(("count", "cursor"), [(3, None), (2, "next")])
def test_what_is_beyond_the_limit_is_told(count: int, cursor: str | None) -> None:
    """On the same page, or on a page that is not asked for."""
    found = ToolList("x")
    assert not found.add(_tools(count), cursor)
    assert ([*found.tools], found.problem) == (["t0", "t1"], "at least 1 tools left out: there are more than 2")


def test_a_long_page_is_cut_so_that_the_list_still_notices() -> None:
    """What the session reads of one page has one tool more than a list takes."""
    result = {"tools": [{"name": str(n)} for n in range(guard.MAX_TOOLS + 9)]}
    guard._cut_tools(result)
    assert len(result["tools"]) == guard.MAX_TOOLS + 1
