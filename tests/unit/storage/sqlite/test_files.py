"""Which files a database has, and whether they are still there."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwire.domain.errors import StorageCorrupt, StorageError
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
    assert "replaced" in files.loss().message


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
    assert DatabaseFiles(tmp_path / "links" / "b.db").identities() == files.identities()


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of the process, as the parameter says."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777], indirect=True, ids=oct)
def test_new_database_is_for_its_own_account(tmp_path: Path) -> None:
    """Whatever the umask is, and where a link leads to a file that is not there yet."""
    (tmp_path / "link.db").symlink_to("b.db")
    for name in ("a.db", "link.db"):
        files = DatabaseFiles(tmp_path / name)
        files.create()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert (tmp_path / name).stat().st_size == 0
        assert files.open_to_others() == {}


def test_mode_of_a_database_that_exists_is_kept(files: DatabaseFiles, tmp_path: Path) -> None:
    """It is the operator's; what is open to others is named."""
    for name, mode in (("a.db", 0o640), ("a.db-wal", 0o604), ("a.db-shm", 0o600), ("a.db.lock", 0o700)):
        (tmp_path / name).chmod(mode)
    (tmp_path / "a.db").write_bytes(b"kept")
    files.create()
    assert (tmp_path / "a.db").read_bytes() == b"kept"
    folder = tmp_path.resolve()
    assert files.open_to_others() == {folder / "a.db": 0o640, folder / "a.db-wal": 0o604}


def test_database_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(StorageError, match=r"cannot create the database .*/none/a.db: No such file"):
        DatabaseFiles(tmp_path / "none" / "a.db").create()
