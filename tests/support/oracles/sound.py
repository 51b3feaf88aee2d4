"""Whether the database that a test leaves is sound, as `turnwire doctor` sees it."""

from pathlib import Path

from typer.testing import CliRunner

from turnwire.cli.commands import app


def assert_sound(path: Path) -> None:
    """Fails with the report unless the doctor finds nothing. The server has to have ended."""
    done = CliRunner().invoke(app, ["doctor", "--json", str(path)])
    assert done.exit_code == 0, done.output
