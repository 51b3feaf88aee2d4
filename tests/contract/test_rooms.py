"""The server's code stays readable: small functions."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "server/turnwire"

MAX_FUNCTION_LINES = 50


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    documented = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
    return (function.end_lineno or 0) - function.lineno + 1 - documented


@pytest.mark.slow
def test_functions_are_short() -> None:
    """Otherwise there is a second concept, which has a name of its own. A module is a concept, whatever its length."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > MAX_FUNCTION_LINES:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    assert found == []
