"""The command line's surface."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnwire import __version__
from turnwire.cli.commands import app
from turnwire.interop.archives import READERS, WRITERS


def test_help_does_not_wait_for_heavy_imports() -> None:
    """Neither gRPC nor SQLite nor an SDK is imported for it."""
    code = (
        "import sys\n"
        "from turnwire.cli import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print(sorted({'grpc', 'google', 'sqlite3', 'openai', 'anthropic', 'structlog'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_start_does_not_wait_for_what_it_does_not_use() -> None:
    """Neither what draws tables nor, without that listener, what serves pages, nor what only SDKs need."""
    code = (
        "import os, sys\n"
        "from turnwire.cli import main\n"
        "os._exit = lambda code: print(code, sorted({'rich', 'uvicorn', 'grpc', 'pydantic'} & set(sys.modules)))\n"
        "main()"
    )
    command = [sys.executable, "-c", code, "serve", "--listen", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2 ['grpc']"], done.stderr


def test_version() -> None:
    """The package's own."""
    assert CliRunner().invoke(app, ["--version"]).output == f"turnwire {__version__}\n"


@pytest.mark.parametrize("model", ["echo", "/echo", "offline/"])
def test_chat_refuses_a_model_without_provider(model: str) -> None:
    """Exit code 2, before anything is sent."""
    assert CliRunner().invoke(app, ["chat", "--model", model, "hello"]).exit_code == 2


@pytest.mark.parametrize(("command", "formats"), [("import", READERS), ("export", WRITERS)])
def test_help_names_the_formats(command: str, formats: Iterable[str]) -> None:
    """All that the server knows besides its own."""
    shown = CliRunner().invoke(app, [command, "--help"], terminal_width=200).output
    assert [name for name in formats if name not in shown] == []


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_configuration_is_named_as_an_argument_or_an_option(command: str, tmp_path: Path) -> None:
    """As `doctor` takes its file; not both."""
    file = tmp_path / "own.toml"
    file.write_text("[log]\nlevel = 'error'")
    given, by_option = (
        CliRunner().invoke(app, ["config", command, *arguments]) for arguments in ([str(file)], ["--config", str(file)])
    )
    assert (given.exit_code, given.output) == (0, by_option.output)
    assert f"{file} is valid" in given.output if command == "check" else 'level = "error"  # file' in given.output
    assert CliRunner().invoke(app, ["config", command, str(file), "--config", str(file)]).exit_code == 2
