"""Where tests are, what they import, and that unit tests wait for no time."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
UNIT = TESTS / "unit"
LAYERS = {"unit", "contract", "e2e", "fault"}

MIRRORED = {"bench": ROOT / "bench", "support": TESTS / "support"}
"""What folders of unit tests mirror; all others mirror the package."""

WITHOUT_MODULE = {
    "core/context/test_compaction_sequences.py": "draws whole conversations and follows them through all of context/",
}
"""Unit tests that name no module, and why."""


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=lambda path: str(path.relative_to(UNIT)))
def test_unit_tests_mirror_the_modules(path: Path) -> None:
    """The tests of X.py, or of the package X, are test_X.py in the same folder."""
    folder, *rest = path.relative_to(UNIT).parts
    mirrored = (
        MIRRORED[folder].joinpath(*rest) if folder in MIRRORED else ROOT.joinpath("server/turnwire", folder, *rest)
    )
    module = mirrored.with_name(path.name.removeprefix("test_"))
    exists = module.exists() or module.with_suffix("").joinpath("__init__.py").exists()
    assert exists != (str(path.relative_to(UNIT)) in WITHOUT_MODULE), f"{module.relative_to(ROOT)}"


def test_the_list_of_exceptions_names_files() -> None:
    """One that has moved leaves the list."""
    assert [name for name in WITHOUT_MODULE if not (UNIT / name).exists()] == []


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_tests_share_only_what_is_in_support(path: Path) -> None:
    """No test, and nothing in support, imports a test."""
    modules = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    assert [name for name in modules if name.startswith("tests.") and name.split(".")[1] in LAYERS] == []


@pytest.mark.parametrize("path", sorted(UNIT.rglob("*.py")), ids=lambda path: str(path.relative_to(UNIT)))
def test_unit_tests_do_not_sleep(path: Path) -> None:
    """They move the loop's clock: `elapse` in tests/support/fakes/loop.py. Letting other tasks run is no sleep."""
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    slept = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "sleep"]
    assert [f"line {call.lineno}" for call in slept if ast.unparse(call.args[0]) != "0"] == []
