"""The server's code stays readable: small functions, modules and folders."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "server/turnwire"

MAX_FUNCTION_LINES = 50
MAX_MODULE_LINES = 400
MAX_MODULES = 9


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    documented = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
    return (function.end_lineno or 0) - function.lineno + 1 - documented


def test_functions_and_modules_are_short() -> None:
    """Otherwise there is a second concept, which has a name of its own."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if len(text.splitlines()) > MAX_MODULE_LINES:
            found.append(str(path.relative_to(PACKAGE)))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > MAX_FUNCTION_LINES:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    assert found == []


def test_folders_have_few_modules() -> None:
    """One that has more is divided: a folder inside it takes those that belong together."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    sizes = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    assert {str(folder.relative_to(PACKAGE)): n for folder, n in sizes.items() if n > MAX_MODULES} == {}
