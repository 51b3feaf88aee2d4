"""The mutants that may survive (`tests/support/mutants/survivors.toml`) are those of today's modules."""

import tomllib
from pathlib import Path

from tests.support.mutants.answers import FILE, Answers, change

ROOT = Path(__file__).parents[2]

DIFF = """--- a
+++ b
@@ -7 +7 @@
-        if size > limit:
+        if size >= limit:
"""


def test_each_is_a_change_of_lines_that_are_there() -> None:
    """A line that has gone takes its entry along; each has a reason that is said in words."""
    for one in tomllib.loads(FILE.read_text()).get("survivor", []):
        lines = [line.strip() for line in (ROOT / one["module"]).read_text().splitlines()]
        assert all(line in lines for line in one["was"].split(" / ") if line), one
        assert one["was"] != one["became"], one
        assert len(one["reason"].split()) >= 5, one


def test_a_mutant_is_found_by_its_lines() -> None:
    """Wherever they stand in the module, and in no other module."""
    answers = Answers(
        '[[survivor]]\nmodule = "a.py"\nwas = "if size > limit:"\nbecame = "if size >= limit:"\nreason = "r"'
    )
    assert change(DIFF) == ("if size > limit:", "if size >= limit:")
    assert (answers.reason("a.py", DIFF), answers.reason("b.py", DIFF)) == ("r", "")
