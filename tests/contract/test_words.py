"""The words of the code: one name for one public class, and docstrings that begin with their subject."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "server/turnwire"
GENERATED = ROOT / "clients/python/src/opencode"
DOCUMENTED = ("server/turnwire", "adapters", "clients/python", "tests/support", "bench", "release")
"""Folders whose docstrings are checked."""
WITHOUT_SUBJECT = re.compile(r"\s*(Of|What|Who|Whose|How|So many|As many)\b")


def shared_names(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the names of public classes that several modules define, with these modules."""
    modules = defaultdict[str, set[str]](set)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(path)
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def without_subject(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and first words of each docstring, of constants and fields too, that begins without its subject."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value
            if WITHOUT_SUBJECT.match(text):
                yield node.lineno, text.strip()[:60]


@pytest.fixture(name="sources", scope="module")
def sources_fixture() -> dict[str, str]:
    """The modules of the server by their paths."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


@pytest.mark.slow
def test_no_two_public_classes_have_one_name(sources: Mapping[str, str]) -> None:
    """A reader who meets a name knows which class it means."""
    assert shared_names(sources) == {}


@pytest.mark.slow
@pytest.mark.parametrize("folder", DOCUMENTED)
def test_docstrings_begin_with_their_subject(folder: str) -> None:
    """Not "Of one call", but "Timeout of one call"; not "What a model is", but "A model"."""
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if GENERATED not in path.parents]
    assert paths
    assert [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in paths
        for line, text in without_subject(path.read_text("utf-8"))
    ] == []


def test_a_name_that_is_given_twice_is_noticed() -> None:
    """A private one is the matter of its module."""
    sources = {"a.py": "class One: ...\nclass _Two: ...", "b.py": "class _Two: ...\nclass One: ..."}
    assert shared_names(sources) == {"One": {"a.py", "b.py"}}


@pytest.mark.parametrize("start", ["Of", "What", "Who", "Whose", "How", "So many", "As many"])
def test_a_docstring_without_its_subject_is_noticed(start: str) -> None:
    """On a module, a class, a constant or a field."""
    source = f'"""{start} x."""\nA = 1\n"""{start} x."""\nclass B:\n    """A b."""\n    c: int\n    """{start} x."""'
    assert [line for line, _ in without_subject(source)] == [1, 3, 7]
    assert list(without_subject('"""Offers. Whole."""')) == []
