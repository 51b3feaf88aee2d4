"""What an examination finds."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct

SHOWN_IDS = 5
"""How many of the things with one problem a report names."""


class Severity(StrEnum):
    """How much a problem matters."""

    ERROR = "error"
    """Something is lost, or clients are shown something wrong."""
    WARNING = "warning"
    """Something is left over and does no harm."""
    NOTE = "note"
    """Normal in some states of a database, and good to know."""


class Problem(Struct, frozen=True):
    """A kind of finding."""

    name: str
    """The table and what is wrong, such as "messages.display"; stable."""
    severity: Severity
    meaning: str
    """One sentence for people, which fits any number of findings."""


class Statement(Struct, frozen=True):
    """One step of a repair."""

    sql: str
    parameters: tuple[Any, ...] | dict[str, Any] = ()


class Finding(Struct, frozen=True):
    """One thing with a problem."""

    problem: Problem
    subject: str
    """The id of the thing, or where it is."""
    repair: tuple[Statement, ...] = ()
    """Statements that may run more than once; empty when nothing can be recomputed."""


class Summary(Struct, frozen=True, kw_only=True):
    """All findings of one problem."""

    name: str
    severity: Severity
    meaning: str
    count: int
    repairable: int
    """How many of them a repair can end."""
    first: tuple[str, ...]
    """The subjects of the first few."""


class Tally:
    """Counts findings; its size does not depend on how many there are."""

    def __init__(self) -> None:
        """Starts without findings."""
        self._found: dict[Problem, tuple[int, int, tuple[str, ...]]] = {}

    def add(self, findings: Iterable[Finding]) -> None:
        """Counts findings."""
        for finding in findings:
            count, repairable, first = self._found.get(finding.problem, (0, 0, ()))
            if len(first) < SHOWN_IDS:
                first = (*first, finding.subject)
            self._found[finding.problem] = (count + 1, repairable + bool(finding.repair), first)

    def summaries(self) -> tuple[Summary, ...]:
        """Returns one summary for each problem: errors first, then warnings, then notes."""
        order = list(Severity)
        return tuple(
            Summary(
                name=problem.name,
                severity=problem.severity,
                meaning=problem.meaning,
                count=count,
                repairable=repairable,
                first=first,
            )
            for problem, (count, repairable, first) in sorted(
                self._found.items(), key=lambda item: (order.index(item[0].severity), item[0].name)
            )
        )


class Report(Struct, frozen=True, kw_only=True):
    """The result of one examination."""

    path: str
    schema_version: int
    known_schema_version: int
    """The newest version that this program knows."""
    is_complete: bool
    """False when an older schema or a damaged file kept the contents from being examined."""
    rows: dict[str, int]
    """How many rows were examined, by table."""
    findings: tuple[Summary, ...]

    @property
    def is_clean(self) -> bool:
        """True when there are notes at most."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def is_repairable(self) -> bool:
        """True when a repair would change something."""
        return any(finding.repairable for finding in self.findings)
