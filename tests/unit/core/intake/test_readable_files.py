"""Opening files that callers name: the store's own are looked at, never opened."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwire.core.intake import readable_files
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.domain.errors import InvalidRequest, MessageTooLarge
from turnwire.ports.store import FileIdentity

FIELD = "parts[0].file.path"

LOCKED_ELSEWHERE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(7)
"""
"""What another process finds: exit code 7 for a file that is locked."""


@pytest.fixture(params=["by descriptor", "by path"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: with O_PATH, and as on systems without it."""
    if request.param == "by path":
        monkeypatch.setattr(readable_files, "LOOK_ONLY", None)
    elif readable_files.LOOK_ONLY is None:
        pytest.skip("this system has no O_PATH")
    return str(request.param)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of the store."""
    path = tmp_path / "own.db"
    path.write_bytes(b"database")
    return path


def _readable(own: Path, max_bytes: int = 100) -> ReadableFiles:
    identity = FileIdentity.of(own.stat())
    return ReadableFiles(directory=str(own.parent), max_bytes=max_bytes, own_files=lambda: frozenset((identity,)))


def _hard_link(own: Path) -> str:
    (own.parent / "hard.txt").hardlink_to(own)
    return "hard.txt"


def _symbolic_link(own: Path) -> str:
    (own.parent / "soft.txt").symlink_to(own.name)
    return "soft.txt"


def _through_a_folder_link(own: Path) -> str:
    (own.parent / "again").symlink_to(".")
    return f"again/{own.name}"


NAMES: list[Callable[[Path], str]] = [
    lambda own: own.name,
    str,
    lambda own: f"./{own.name}",
    lambda own: f"../{own.parent.name}/{own.name}",
    lambda own: f"//{own}",
    _hard_link,
    _symbolic_link,
    _through_a_folder_link,
]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", NAMES)
def test_own_files_are_refused_and_stay_locked(own: Path, name: Callable[[Path], str]) -> None:
    """Whatever name leads to them; the refusal names the field, and the process keeps its locks on the file."""
    path = name(own)
    with own.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        with pytest.raises(InvalidRequest) as caught:
            _readable(own).read(path, FIELD)
        [violation] = caught.value.violations
        assert (violation.field, violation.reason) == (FIELD, "PATH_NOT_ALLOWED")
        assert "own database" in violation.description
        assert subprocess.run([sys.executable, "-c", LOCKED_ELSEWHERE, str(own)], check=False).returncode == 7


@pytest.mark.usefixtures("way")
def test_own_files_are_asked_for_at_each_opening(own: Path) -> None:
    """A file that the store makes later is refused as well."""
    later = own.with_name("later")
    later.write_bytes(b"text")
    known: set[FileIdentity] = set()
    readable = ReadableFiles(directory=str(own.parent), max_bytes=100, own_files=lambda: known)
    assert readable.read("later", FIELD) == b"text"
    known.add(FileIdentity.of(later.stat()))
    with pytest.raises(InvalidRequest, match="own database"):
        readable.read("later", FIELD)


@pytest.mark.usefixtures("way")
def test_own_file_over_the_limit_is_refused_as_such(own: Path) -> None:
    """Which file it is counts before its size."""
    with pytest.raises(InvalidRequest) as caught:
        _readable(own, max_bytes=1).read(own.name, FIELD)
    assert not isinstance(caught.value, MessageTooLarge)


@pytest.mark.usefixtures("way")
def test_other_files_are_read(own: Path) -> None:
    """Those beside it, within the limit."""
    own.with_name("notes.txt").write_bytes(b"12345")
    assert _readable(own).read("notes.txt", FIELD) == b"12345"
    assert _readable(own, max_bytes=5).read("notes.txt", FIELD) == b"12345"
    with pytest.raises(MessageTooLarge):
        _readable(own, max_bytes=4).read("notes.txt", FIELD)


@pytest.mark.usefixtures("way")
def test_pipes_and_folders_are_not_waited_for(own: Path) -> None:
    """They are refused at once."""
    os.mkfifo(own.with_name("pipe"))
    for path in ("pipe", "."):
        with pytest.raises(InvalidRequest, match="not a readable file"):
            _readable(own).read(path, FIELD)


@pytest.mark.usefixtures("way")
def test_file_without_read_permission_is_refused(own: Path) -> None:
    """Looking at it is not reading it."""
    secret = own.with_name("secret.txt")
    secret.write_bytes(b"secret")
    secret.chmod(0)
    if os.access(secret, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InvalidRequest, match="not a readable file"):
        _readable(own).read("secret.txt", FIELD)


def _swap_when_looked_at(own: Path, target: Path) -> ReadableFiles:
    """Returns files where the store's own takes the place of another right after that one was looked at."""
    identity, looks = FileIdentity.of(own.stat()), [0]

    def own_files() -> frozenset[FileIdentity]:
        looks[0] += 1
        if looks[0] == 1:
            target.unlink()
            target.hardlink_to(own)
        return frozenset((identity,))

    return ReadableFiles(directory=str(own.parent), max_bytes=100, own_files=own_files)


def test_own_file_that_takes_the_place_of_another_is_not_closed(own: Path, way: str) -> None:
    """By descriptor what was looked at is read; by path the refused descriptor stays open. The locks stay."""
    target = own.with_name("notes.txt")
    target.write_bytes(b"notes")
    with own.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        if way == "by descriptor":
            assert _swap_when_looked_at(own, target).read("notes.txt", FIELD) == b"notes"
        else:
            with pytest.raises(InvalidRequest, match="own database"):
                _swap_when_looked_at(own, target).read("notes.txt", FIELD)
        assert subprocess.run([sys.executable, "-c", LOCKED_ELSEWHERE, str(own)], check=False).returncode == 7
