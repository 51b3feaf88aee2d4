"""The versions of what an installation is made of."""

import json
import sqlite3

import pytest

from turnwire import __version__
from turnwire.cli import versions
from turnwire.storage.sqlite.schema import MIGRATIONS


def test_versions_are_those_of_the_parts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is missing is said to be."""
    monkeypatch.setattr(versions, "PACKAGES", ("grpcio", "turnwire-no-such-package"))
    assert versions.run_version(as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["turnwire"], found["schema"]) == (__version__, len(MIGRATIONS))
    assert found["sqlite"] == sqlite3.sqlite_version
    assert found["grpcio"].startswith("1.")
    assert found["turnwire-no-such-package"] is None
    versions.run_version(as_json=False)
    assert "turnwire-no-such-package not installed\n" in capsys.readouterr().out
