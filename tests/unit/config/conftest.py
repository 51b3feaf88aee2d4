"""Set-up of all tests of the configuration."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds a turnwire.toml that it did not write."""
    monkeypatch.chdir(tmp_path)
