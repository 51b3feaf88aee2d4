"""The client is a package of its own, of the server's version."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import turnwire
import turnwire_client

ROOT = Path(__file__).parents[3]


def test_server_and_client_have_one_version() -> None:
    """The server needs the client of its own version, and nothing else changes with it."""
    assert turnwire.__version__ == turnwire_client.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"turnwire-client=={turnwire.__version__}" in project["dependencies"]


def test_the_client_has_the_license_of_the_project() -> None:
    """Word by word: a package cannot have a file from outside its folder."""
    assert (ROOT / "clients/python/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
def test_the_client_imports_nothing_of_the_server() -> None:
    """Nor a package that only the server needs."""
    code = "import sys, turnwire_client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = set(done.stdout.split())
    assert not imported & {
        "turnwire",
        "openai",
        "anthropic",
        "sqlite3",
        "msgspec",
        "structlog",
        "click",
        "grpc_status",
    }
