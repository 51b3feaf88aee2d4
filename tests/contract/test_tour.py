"""docs/internals/tour.md names files, classes and functions that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "server/turnwire"
TOUR = (ROOT / "docs/internals/tour.md").read_text()
MAX_FILES = 37
"""On the way of one message; 30 are wanted."""

OF_THE_CONTRACT = {"SendMessage", "StreamMessage", "GetMessages", "request_id"}
"""Names of methods and fields; other tests look after them."""


def defined_in(path: Path) -> set[str]:
    """Returns the classes and functions of a module; methods as `Class.method`."""
    return set(_names(ast.parse(path.read_text()).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}.")


def missing(text: str) -> list[str]:
    """Returns what a text names in backticks and is not there: paths, and names in the path before them."""
    found: list[str] = []
    path: Path | None = None
    for word in re.findall(r"`([^`]+)`", text):
        if word.endswith(".py"):
            path = PACKAGE / word
            if not path.is_file():
                found.append(word)
                path = None
        elif path is not None and _is_name(word) and word not in defined_in(path):
            found.append(f"{path.relative_to(PACKAGE)}: {word}")
    return found


def _is_name(word: str) -> bool:
    return re.fullmatch(r"\w+(\.\w+)?", word) is not None and word not in OF_THE_CONTRACT


def test_everything_that_the_tour_names_exists() -> None:
    """Each file, and each class and function in the file that was named last."""
    assert missing(TOUR) == []


def test_the_way_of_a_message_has_few_files() -> None:
    """Those of the numbered steps: whoever follows a message reads them all."""
    steps = TOUR[: TOUR.index("`StreamMessage` is both at once")]
    assert len(set(re.findall(r"`([\w/]+\.py)`", steps))) <= MAX_FILES
