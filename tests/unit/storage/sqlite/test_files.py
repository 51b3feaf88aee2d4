"""Which files a database has, and whether they are still there."""

from pathlib import Path

import pytest

from turnwire.domain.errors import StorageCorrupt
from turnwire.ports.store import FileIdentity
from turnwire.storage.sqlite.files import DatabaseFiles

LIVE = ["a.db", "a.db-wal", "a.db-shm"]


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    """A database with its files, remembered."""
    for name in (*LIVE, "a.db.lock"):
        (tmp_path / name).touch()
    found = DatabaseFiles(tmp_path / "a.db")
    found.remember()
    return found


def test_files_in_place_are_no_loss(files: DatabaseFiles, tmp_path: Path) -> None:
    """Neither are writing, other names of them, journals that come and go, or a lock file that was removed."""
    (tmp_path / "a.db").write_bytes(b"more")
    (tmp_path / "other").hardlink_to(tmp_path / "a.db-wal")
    (tmp_path / "a.db-journal").touch()
    (tmp_path / "a.db.lock").unlink()
    assert files.loss() is None


@pytest.mark.parametrize("name", LIVE)
def test_deleted_file_is_a_loss(files: DatabaseFiles, tmp_path: Path, name: str) -> None:
    """Even when it lives on under another name: nobody would look for it there. The error names the path."""
    (tmp_path / name).rename(tmp_path / "elsewhere")
    loss = files.loss()
    assert type(loss) is StorageCorrupt
    assert "deleted" in loss.message
    assert loss.metadata == {"path": str(tmp_path.resolve() / name)}


@pytest.mark.parametrize("name", LIVE)
def test_replaced_file_is_a_loss(files: DatabaseFiles, tmp_path: Path, name: str) -> None:
    """The path names another file."""
    (tmp_path / "new").touch()
    (tmp_path / "new").rename(tmp_path / name)
    loss = files.loss()
    assert loss is not None
    assert "replaced" in loss.message


def test_files_that_were_never_there_are_no_loss(tmp_path: Path) -> None:
    """Only what was opened can be lost."""
    (tmp_path / "a.db").touch()
    files = DatabaseFiles(tmp_path / "a.db")
    files.remember()
    assert files.loss() is None


def test_identities_are_those_opened_and_those_there_now(files: DatabaseFiles, tmp_path: Path) -> None:
    """A file keeps its identity when it loses its name; a new one at an old path counts too."""
    kept = FileIdentity.of((tmp_path / "a.db-wal").stat())
    (tmp_path / "a.db-wal").rename(tmp_path / "kept")
    for name in ("a.db-wal", "a.db-journal"):
        (tmp_path / name).touch()
    there = {FileIdentity.of((tmp_path / name).stat()) for name in (*LIVE, "a.db.lock", "a.db-journal")}
    assert files.identities() == there | {kept}


def test_link_to_the_database_leads_to_its_files(files: DatabaseFiles, tmp_path: Path) -> None:
    """SQLite puts its files beside what the link leads to."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "b.db").symlink_to(tmp_path / "a.db")
    linked = DatabaseFiles(tmp_path / "links" / "b.db")
    assert linked.identities() == files.identities()
