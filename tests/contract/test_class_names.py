"""A public class of the engine has a name of its own, so that a reader knows which one a name means."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "server/turnwire"
ENGINE = ("core", "domain", "feed", "ports", "storage")
SHARED = {
    "Budget": {"domain/conversation/sessions.py", "storage/sqlite/listing/queries.py"},
    "Facts": {"storage/rows.py", "storage/sqlite/care/integrity.py"},
}
"""Names that two classes have still, both of which the storage can give up."""


def shared_names(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the names of public classes that several modules define, with these modules."""
    modules = defaultdict[str, set[str]](set)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(path)
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def test_no_two_public_classes_have_one_name() -> None:
    """In all packages of the engine."""
    paths = [path for package in ENGINE for path in (PACKAGE / package).rglob("*.py")]
    found = shared_names({path.relative_to(PACKAGE).as_posix(): path.read_text() for path in paths})
    assert found.keys() <= SHARED.keys(), f"these names mean several classes: {found}"


def test_a_name_that_is_given_twice_is_noticed() -> None:
    """A private one is the matter of its module."""
    sources = {"a.py": "class One: ...\nclass _Two: ...", "b.py": "class _Two: ...\nclass One: ..."}
    assert shared_names(sources) == {"One": {"a.py", "b.py"}}
