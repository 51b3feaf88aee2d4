"""Which tools are taken, and what is said of the others."""

from types import SimpleNamespace

from turnwire.tools.mcp.tool_list import MAX_LIST_BYTES, MAX_LISTED_TOOLS, ToolList


def _tools(count: int, description: str = "") -> list[SimpleNamespace]:
    return [SimpleNamespace(name=f"t{number}", description=description, input_schema={}) for number in range(count)]


def test_all_tools_within_the_limit_are_no_problem() -> None:
    """Both of their number and of their size."""
    found = ToolList("x")
    found.add(_tools(MAX_LISTED_TOOLS))
    assert (len(found.tools), found.problem) == (MAX_LISTED_TOOLS, "")


def test_a_server_has_a_bounded_number_of_tools() -> None:
    """However small they are, and on whatever page."""
    found = ToolList("x")
    found.add(_tools(MAX_LISTED_TOOLS - 1))
    found.add(_tools(MAX_LISTED_TOOLS + 3)[MAX_LISTED_TOOLS - 1 :])
    assert len(found.tools) == MAX_LISTED_TOOLS
    assert found.problem == "at least 3 tools left out: they are more than 2000"


def test_what_is_beyond_the_limit_is_told() -> None:
    """The problem has their number, and why the first of them is left out."""
    found = ToolList("x")
    found.add(_tools(4, "d" * (MAX_LIST_BYTES // 2 - 100)))
    assert [*found.tools] == ["t0", "t1"]
    why = "all together have over 2097152 bytes of descriptions and schemas"
    assert found.problem == f"at least 2 tools left out: {why}"
