"""Which tests carry out which line of the server, and how long each takes.

    python -m tests.support.mutants.covering COVERED SUITE

runs the tests once in the current folder, with a context of coverage for each, and writes what it saw to the folder
COVERED. What a server in another process carries out is not seen; the suites that start such servers are slow, and no
suite for mutants.
"""

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

import pytest
from coverage import CoverageData

SUITES = {
    "unit": tuple(f"tests/unit/{room}" for room in ("api", "core", "domain", "feed", "providers", "storage")),
    "contract": ("tests/contract",),
    "e2e": ("tests/e2e",),
}
"""The folders of each suite, the nearest tests first."""

OTHERS = ("chat", "cli", "desktop", "envoy", "migrate", "moving", "operator", "recordings")
"""Names of tests of the real server that cover only modules without mutants."""

OPTIONS = ("-q", "--tb=short", "--no-header", "--assert=plain", "-p", "no:cacheprovider")
"""Assertions as Python has them: pytest's own need packages that were not imported before."""

SELECTED = ("-m", "not recordings", "-k", "not keep_a_pace")
"""Tests whose outcome does not depend on the machine, and that do not take minutes while their lines are noted."""


WHOLE = (
    "tests/contract/test_values.py::test_values_never_change",
    "tests/contract/test_docs.py::test_generated_documents_are_fresh",
)
"""Tests of all modules as they were imported: they concern each line that is carried out then."""

SLOW_SECONDS = 15
"""A test that takes longer while its lines are noted is no test for mutants."""


class Covering:
    """Answers which tests concern a line; see `tests_of`."""

    def __init__(self, covered: Path, checkout: Path, max_seconds: int) -> None:
        """Reads what the runs of all suites have written so far.

        Args:
            covered: The folder where it is.
            checkout: The folder in which the tests ran.
            max_seconds: Most seconds of tests against one mutant, as long as they took without it: the nearest ones
                count.
        """
        self._checkout = checkout
        self.max_seconds = max_seconds
        self._data: list[CoverageData] = []
        self._seconds: dict[str, float] = {}
        self.suites: list[str] = []
        """Those that were run."""
        for suite in SUITES:
            if (times := _times(covered, suite)).exists():
                self.suites.append(suite)
                self._seconds.update(json.loads(times.read_text()))
                data = CoverageData(str(_data(covered, suite)))
                data.read()
                self._data.append(data)

    def tests_of(self, module: str, lines: Iterable[int], without: Collection[str] = ()) -> list[str]:
        """Returns the tests that carry out one of some lines, the nearest and quickest first.

        A line that is carried out at the import of its module concerns every test that uses the module, or its folder.

        Args:
            module: Path of the module in the checkout.
            lines: Numbers of its lines.
            without: Suites whose tests are left out: they were tried.
        """
        wanted, file = set(lines), self._checkout / module
        direct: set[str] = set()
        users = self._users((str(file),))
        for data in self._data:
            for line, contexts in data.contexts_by_lineno(str(file)).items():
                if line in wanted:
                    direct |= _tests(contexts)
        if not users:  # nothing but what is carried out at its import
            users = self._users(str(path) for path in file.parent.rglob("*.py"))
        lines_of = Counter(test.partition("[")[0] for test in users.elements())
        known = {test for test in self._known(direct or users) if test.split("/")[1] not in without}
        near = sorted(known, key=lambda test: self._distance(module, test, lines_of[test]))
        return [*self._known(() if direct else WHOLE), *self._within(near)]

    def seconds(self, tests: Iterable[str]) -> float:
        """Returns how long tests took together."""
        return sum(self._seconds[test] for test in tests)

    def _users(self, files: Iterable[str]) -> Counter[str]:
        """Returns how many lines of some files each test carries out."""
        return Counter(
            test
            for file in files
            for data in self._data
            for contexts in data.contexts_by_lineno(file).values()
            for test in _tests(contexts)
        )

    def _known(self, tests: Iterable[str]) -> set[str]:
        """Returns the tests that passed, without their parameters: a mutant may change these."""
        return {name for test in tests if (name := test.partition("[")[0]) in self._seconds}

    def _within(self, tests: Iterable[str]) -> Iterable[str]:
        left = float(self.max_seconds)
        for test in tests:
            if self._seconds[test] <= left:
                left -= self._seconds[test]
                yield test

    def _distance(self, module: str, test: str, lines: int) -> tuple[int, int, int, float, str]:
        """Returns a key: the mirror of the module, the suite, the folder, how much it uses the module, the time."""
        room = PurePosixPath(module).relative_to("server/turnwire")
        file = PurePosixPath(test.partition("::")[0])
        mirror = PurePosixPath("tests/unit") / room.parent / f"test_{room.name}"
        suite = list(SUITES).index(file.parts[1])
        shared = sum(1 for a, b in zip(room.parts, file.parts[2:], strict=False) if a == b)
        return (-1 if file == mirror else suite), -shared, -lines, self._seconds[test], test


def _tests(contexts: Iterable[str]) -> set[str]:
    """Returns the names of tests of contexts, which have the phase of the test behind a line."""
    return {context.partition("|")[0] for context in contexts if context}


class _Times:
    """Notes what each test function took in all, and leaves out those that did not pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called three times for each test."""
        name = report.nodeid.partition("[")[0]
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if not report.passed:
            self._failed.add(name)

    def passed(self) -> dict[str, float]:
        """Returns the seconds of those that passed; tests that were skipped did not."""
        return {name: round(took, 3) for name, took in self.seconds.items() if name not in self._failed}


def _data(covered: Path, suite: str) -> Path:
    return covered / f"{suite}.coverage"


def _times(covered: Path, suite: str) -> Path:
    return covered / f"{suite}.json"


def main() -> int:
    """Runs one suite. Returns 1 when not even one test passed, or the run broke off, else 0."""
    covered, suite = Path(sys.argv[1]), sys.argv[2]
    times = _Times()
    ignored = [f"--ignore-glob=tests/e2e/test_{name}*" for name in OTHERS]
    code = 0
    # pytest-cov switches the context with each test; its file is where COVERAGE_FILE says
    try:
        code = pytest.main(
            [
                *OPTIONS,
                "--tb=native",  # the others fail where a test is ended in a line without a number
                *SELECTED,
                f"--timeout={SLOW_SECONDS}",
                "--cov=turnwire",
                "--cov-context=test",
                "--cov-report=",
                *ignored,
                *SUITES[suite],
            ],
            plugins=[times],
        )
    finally:  # objects that were left open fail the session when all tests have passed
        passed = {} if code == pytest.ExitCode.INTERNAL_ERROR else times.passed()
        if passed:
            _times(covered, suite).write_text(json.dumps(passed, indent=0, sort_keys=True))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
