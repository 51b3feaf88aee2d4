"""Findings are counted, and a report stays small."""

from turnwire.storage.sqlite.care.findings import Finding, Problem, Report, Severity, Statement, Tally

NOTE = Problem("a.note", Severity.NOTE, "a note")
ERROR = Problem("z.error", Severity.ERROR, "an error")


def test_summaries_have_the_first_few_and_errors_first() -> None:
    """However many there are."""
    tally = Tally()
    tally.add(Finding(NOTE, f"n{number}") for number in range(3))
    tally.add(Finding(ERROR, f"e{number}", (Statement("x"),) * (number % 2)) for number in range(1000))
    error, note = tally.summaries()
    assert (error.name, error.count, error.repairable, error.first) == (
        "z.error",
        1000,
        500,
        ("e0", "e1", "e2", "e3", "e4"),
    )
    assert (note.name, note.count, note.repairable) == ("a.note", 3, 0)


def report(*findings: Finding) -> Report:
    """Returns a report of some findings."""
    tally = Tally()
    tally.add(findings)
    return Report(
        path="a.db", schema_version=3, known_schema_version=3, is_complete=True, rows={}, findings=tally.summaries()
    )


def test_notes_are_clean() -> None:
    """Everything else is not."""
    assert report(Finding(NOTE, "n")).is_clean
    assert not report(Finding(NOTE, "n"), Finding(ERROR, "e")).is_clean
    assert not report(Finding(ERROR, "e")).is_repairable
    assert report(Finding(ERROR, "e", (Statement("x"),))).is_repairable
