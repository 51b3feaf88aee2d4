"""Patterns of schemas: run where that is safe."""

import itertools
import re
import time
import warnings

import pytest

from turnwire.core.schemas.patterns import known_pattern, regex_matches, steps_to_compile


def _free(_cost: int) -> None:
    """Lets every search happen."""


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[a-z]{2,5}$", "abc", True),
        ("^[a-z]{2,5}$", "abcdefg", False),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-01-02", True),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-1-2", False),
        ("^(red|green)$", "blue", False),
        (r"^(\d{3}-){2}\d{4}$", "555-555-1234", True),
        ("[*+]", "a", False),
        ("b", "abc", True),
    ],
)
def test_ordinary_patterns_are_run(pattern: str, text: str, found: bool) -> None:
    """They may match anywhere, as JSON Schema says."""
    assert regex_matches(pattern, text, _free) is found


_IN_SETS = ("[", "-", "&", "~", "|", "a", "z", "^", "\\]", "\\-", "\\d", "\\x2d", "\\[")


def test_sets_mean_what_they_say_without_a_warning() -> None:
    """Python warns of what may become an operation on sets; a line on stderr for each schema would be the sender's."""
    for length in (1, 2, 3):
        for inner in itertools.product(_IN_SETS, repeat=length):
            for first in ("", "]", "^", "^]"):
                pattern = f"[{first}{''.join(inner)}]"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)
                    try:
                        meant = re.compile(pattern)
                    except re.error:
                        meant = None
                known = known_pattern.__wrapped__(pattern)  # all warnings are errors here
                assert (known is None) is (meant is None), pattern
                if known is not None and meant is not None:
                    assert _members(known.compiled) == _members(meant), pattern


def _members(pattern: re.Pattern[str]) -> list[str]:
    return pattern.findall("".join(map(chr, range(128))))


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a|b|ab)*c",
        "a*" * 30 + "b",
        "(a?){40}a{40}",
        "a?" * 30 + "b",
        "(?:a+)+$",
        "((a+)b?)*$",
        ".*.*.*b",
        "a{2000}b",
        "(a{100}){40}b",
        r"(a*)\1b",
        "[" + "a-z" * 400 + "]",
        "(?#[)(a+)+$(?#])",
        "(?x)#[\n(a+)+$ #]",
        "(?i)(?#[)(a+)+$(?#])",
        "(?P<x>a*)(?P=x)b",
        "(?:(?:){60000}){60000}b",
        "(?:(?:a{0}){60000}){60000}b",
        r"(?:(?:\b){60000}){60000}b",
        "(?:(?=a{100}){60000}){60000}b",
    ],
)
def test_dangerous_patterns_cost_nothing(pattern: str) -> None:
    """What might take for ever counts as matching: the tool checks for itself."""
    began = time.thread_time()
    assert regex_matches(pattern, "a" * 5000 + "!", _free)
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("pattern", [r"\p{L}", "(", "(?<name>a)", "a{99999999999}"])
def test_patterns_of_other_dialects_match(pattern: str) -> None:
    """JSON Schema speaks ECMAScript; what Python cannot read is no reason to refuse a call."""
    assert regex_matches(pattern, "1", _free)


def test_sets_of_all_characters_count_as_what_they_cost_to_compile() -> None:
    """A few hundred of them would keep the thread of the schemas for a minute."""
    ordinary, wide = "[a-z0-9_-]" * 80, r"[\0-\uffff]" * 80
    assert steps_to_compile(ordinary) < 100
    assert steps_to_compile(wide) > 10_000
    assert steps_to_compile("[\uffff]" * 80) > 10_000
    assert steps_to_compile(wide * 100) == 1, "is not compiled"


def test_the_shortest_pattern_costs_a_step() -> None:
    """Thousands of them may stand in one schema."""
    assert [steps_to_compile(pattern) for pattern in ("", "a", "^a$")] == [1, 1, 1]


def test_what_a_search_costs_is_told_before_it() -> None:
    """Nothing is told of a pattern that is not run."""
    told: list[int] = []
    assert regex_matches("^ab$", "ab", told.append)
    assert regex_matches("(a+)+$", "ab", told.append)
    assert len(told) == 1 and told[0] > 0
