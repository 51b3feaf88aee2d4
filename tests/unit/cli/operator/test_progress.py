"""Progress bars are for people alone."""

import io

import pytest

from turnwire.cli.operator.progress import STEP_ROWS, ExaminationBar, progress_bar


class Terminal(io.StringIO):
    """A terminal of a person."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bar_is_shown_on_a_terminal_alone(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log file of a nightly backup stays empty."""
    stderr = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar() as bar:
        bar.begin("copying")
        bar.show(5, 10)
    assert ("copying" in stderr.getvalue()) == is_terminal


def test_examination_counts_all_tables() -> None:
    """In steps, because drawing costs more than a row."""

    class Bar:
        def __init__(self) -> None:
            self.shown: list[tuple[int, int]] = []

        def begin(self, work: str, total: int | None = None) -> None:
            self.work = (work, total)

        def show(self, done: int, total: int) -> None:
            self.shown.append((done, total))

    bar = Bar()
    examination = ExaminationBar(bar)  # type: ignore[arg-type]
    examination.begin({"messages": 2 * STEP_ROWS, "events": STEP_ROWS})
    for _ in range(2 * STEP_ROWS):
        examination.advance("messages", 1)
    examination.advance("events", STEP_ROWS)
    assert bar.work == ("examining rows", 3 * STEP_ROWS)
    assert bar.shown == [(n * STEP_ROWS, 3 * STEP_ROWS) for n in (1, 2, 3)]
