"""Where tests are, what they import, and that unit tests wait for no time."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"
LAYERS = ("tests.unit", "tests.contract", "tests.e2e", "tests.fault", "tests.fuzz", "tests.clients")

MIRRORED = {"bench": ROOT / "bench", "release": ROOT / "release", "support": TESTS / "support"}
"""What folders of unit tests mirror; all others mirror the package."""

WITHOUT_MODULE = {
    "core/context/test_compaction_sequences.py": "draws whole conversations and follows them through all of context/",
}
"""Unit tests that name no module, and why."""


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_bytes())))


def _module_of(test: Path) -> Path:
    folder, *rest = test.relative_to(UNIT).with_name(test.name.removeprefix("test_")).parts
    return MIRRORED.get(folder, ROOT / "server/turnwire" / folder).joinpath(*rest)


def test_unit_tests_mirror_the_modules() -> None:
    """The tests of X.py, or of the package X, are test_X.py in the same folder; only those in the list are not."""
    tests = {test.relative_to(UNIT).as_posix(): _module_of(test) for test in UNIT.rglob("test_*.py")}
    packages = {name for name, module in tests.items() if module.with_suffix("").joinpath("__init__.py").exists()}
    assert {name for name, module in tests.items() if not module.exists()} - packages == set(WITHOUT_MODULE)


def test_tests_share_only_what_is_in_support() -> None:
    """No test, and nothing in support, imports a test."""
    found = []
    for path in TESTS.rglob("*.py"):
        for node in _nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.relative_to(TESTS)}: {name}" for name in names if name.startswith(LAYERS)]
    assert found == []


def test_unit_tests_do_not_sleep() -> None:
    """They move the loop's clock: `elapse` in tests/support/fakes/loop.py. Letting other tasks run is no sleep."""
    found = []
    for path in UNIT.rglob("*.py"):
        calls = [node for node in _nodes(path) if isinstance(node, ast.Call)]
        slept = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep"]
        found += [f"{path.relative_to(UNIT)}:{call.lineno}" for call in slept if ast.unparse(call.args[0]) != "0"]
    assert found == []
