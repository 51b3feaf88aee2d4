"""Tables are laid out as they come, and no text controls the terminal."""

from collections.abc import Iterator

import pytest
from rich.table import Column

from turnwire.cli.operator.output import TABLE_ROWS, one_line, print_error, print_json, print_line, print_table

COLUMNS = (Column("name", width=10), Column("count", width=5, justify="right"), Column("text"))


def test_rows_are_printed_while_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """In columns that keep their places."""
    printed: list[int] = []

    def rows() -> Iterator[tuple[str, ...]]:
        for number in range(2 * TABLE_ROWS + 1):
            printed.append(capsys.readouterr().out.count("\n"))
            yield (f"n{number}", str(number), "text")

    print_table(COLUMNS, rows())
    assert printed[TABLE_ROWS - 1] == 0
    assert sum(printed) == 2 * TABLE_ROWS + 1
    assert capsys.readouterr().out == "n200          200  text\n"


def test_cells_are_one_line_and_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Without control characters and without markup."""
    print_table(COLUMNS, [("a" * 20, "1", "x\x1b[2J\ny [red]z[/red] " + "w" * 300)])
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "count", "text"]
    assert line.startswith("aaaaaaaaa…      1  x[2J y [red]z[/red] www")
    assert line.endswith("…")


def test_empty_table_has_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    """So that nobody takes it for a failure."""
    assert print_table(COLUMNS, []) == 0
    assert capsys.readouterr().out.split() == ["name", "count", "text"]


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
