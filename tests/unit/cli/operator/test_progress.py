"""Progress bars are for people alone."""

import io

import pytest

from turnwire.cli.operator.progress import progress_bar


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
