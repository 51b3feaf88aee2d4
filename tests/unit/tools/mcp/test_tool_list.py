"""Which tools are taken, and what is said of the others."""

from types import SimpleNamespace

from turnwire.tools.mcp.tool_list import MAX_LIST_BYTES, ToolList


def _tools(count: int, description: str = "") -> list[SimpleNamespace]:
    return [SimpleNamespace(name=f"t{number}", description=description, input_schema={}) for number in range(count)]


def test_all_tools_within_the_limit_are_no_problem() -> None:
    """However many."""
    found = ToolList("x")
    found.add(_tools(1000))
    assert (len(found.tools), found.problem) == (1000, "")


def test_what_is_beyond_the_limit_is_told() -> None:
    """The problem has their number, and why the first of them is left out."""
    found = ToolList("x")
    found.add(_tools(4, "d" * (MAX_LIST_BYTES // 2 - 100)))
    assert [*found.tools] == ["t0", "t1"]
    why = "all together have over 2097152 bytes of descriptions and schemas"
    assert found.problem == f"at least 2 tools left out: {why}"
