"""Output of commands is for people or programs, and no text controls the terminal."""

import io

import pytest

from turnwire.cli.output import print_error, print_json, print_line, print_table, progress_bar
from turnwire.cli.visible_text import one_line


def test_a_table_has_columns_as_wide_as_their_texts(capsys: pytest.CaptureFixture[str]) -> None:
    """Each text is on one line, without control characters and without markup; numbers end below each other."""
    print_table(("name", "count"), [("x\x1b[2J\ny [red]z", "1"), ("", "200")], {"count"})
    assert capsys.readouterr().out.splitlines() == [
        "name           count",
        "x[2J y [red]z      1",
        "                 200",
    ]


def test_an_empty_table_has_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    """So that nobody takes it for a failure."""
    print_table(("name", "count"), [])
    assert capsys.readouterr().out == "name  count\n"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    print_json({"a": "\x1b\u009bü\n"})
    assert capsys.readouterr().out == '{"a":"\\u001b\\u009b\\u00fc\\n"}\n'


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Long ones are not wrapped; an error is one line on standard error."""
    print_line("[bold]" + "x" * 300)
    print_error("a\nb\x1b")
    captured = capsys.readouterr()
    assert captured.out == "[bold]" + "x" * 300 + "\n"
    assert captured.err == "turnwire: a b\n"
    assert one_line(" a\t\n b ") == "a b"


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
