"""The file of own tokens: what commands and a server rely on when both use it."""

import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from turnwire.domain.errors import StorageCorrupt, StorageError, StorageSchemaTooNew
from turnwire.domain.principal import Principal, Role
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.token_file import TokenFile

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(number: int, expires_at: datetime | None = None) -> TokenRecord:
    """A token, later than those of lower numbers."""
    return TokenRecord(
        token_id=f"tok_{number}",
        token_hash=bytes([number]) * 32,
        principal=Principal(tenant="acme", subject="eve", role=Role.WRITER),
        created_at=START + timedelta(seconds=number),
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is; its folder is not there yet."""
    return tmp_path / "data" / "tokens.db"


def test_tokens_are_kept(path: Path) -> None:
    """Whole, in the order of their making, over a close."""
    first, second = record(1), record(2, START + timedelta(days=1))
    file = TokenFile.open(path)
    file.add(second)
    file.add(first)
    file.close()
    file.close()
    assert TokenFile.open(path).all() == (first, second)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_its_owner_reads_it(path: Path, umask: int) -> None:
    """Whatever the umask is, also where it was wider before."""
    before = os.umask(umask)
    try:
        TokenFile.open(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        TokenFile.open(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_others_see_a_change_once(path: Path) -> None:
    """Of another process; one's own uses are no change."""
    server, command = TokenFile.open(path), TokenFile.open(path)
    assert server.changed()
    assert server.all() == ()
    assert not server.changed()
    command.add(record(1))
    assert server.changed()
    assert server.all() == (record(1),)
    server.note_uses({"tok_1": START, "tok_unknown": START})
    assert not server.changed()
    assert command.revoke("tok_1", START)
    assert server.changed()
    assert server.all()[0].revoked_at == START


def test_revoking_again_keeps_the_first_time(path: Path) -> None:
    """And an unknown token is named as such."""
    file = TokenFile.open(path)
    file.add(record(1))
    assert file.revoke("tok_1", START) and file.revoke("tok_1", START + timedelta(days=1))
    assert not file.revoke("tok_2", START)
    assert file.all()[0].revoked_at == START


def test_the_last_use_only_moves_on(path: Path) -> None:
    """An older one, of a server with a slower clock, changes nothing."""
    file = TokenFile.open(path)
    file.add(record(1))
    for seconds in (60, 30):
        file.note_uses({"tok_1": START + timedelta(seconds=seconds)})
    assert file.all()[0].last_used_at == START + timedelta(seconds=60)


def test_a_deleted_file_has_no_tokens(path: Path) -> None:
    """They are not valid until it is back; nothing is written meanwhile."""
    server = TokenFile.open(path)
    server.add(record(1))
    server.all()
    moved = path.with_suffix(".moved")
    path.rename(moved)
    assert server.changed() and server.all() == ()
    server.note_uses({"tok_1": START})
    assert not path.exists()
    moved.rename(path)
    assert server.changed() and server.all() == (record(1),)


def test_a_replaced_file_is_opened(path: Path, tmp_path: Path) -> None:
    """The tokens are those of the new one."""
    other = TokenFile.open(tmp_path / "other.db")
    other.add(record(2))
    other.close()
    server = TokenFile.open(path)
    server.add(record(1))
    server.all()
    (tmp_path / "other.db").replace(path)
    assert server.changed() and server.all() == (record(2),)


def test_a_newer_file_is_left_alone(path: Path) -> None:
    """An older version does not guess what it means."""
    TokenFile.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StorageSchemaTooNew):
        TokenFile.open(path)


def test_a_file_that_is_no_database_is_refused(path: Path, tmp_path: Path) -> None:
    """So is a folder, and one that lies below a file."""
    path.parent.mkdir()
    path.write_text("no database " * 100)
    with pytest.raises(StorageCorrupt):
        TokenFile.open(path)
    for wrong in (tmp_path, path / "tokens.db"):
        with pytest.raises(StorageError):
            TokenFile.open(wrong)


@pytest.mark.parametrize("do", ["emptied", "overwritten"])
def test_a_file_that_was_damaged_while_it_is_open_is_an_error(path: Path, do: str) -> None:
    """Who follows it keeps the tokens that it knows, and tells it."""
    file = TokenFile.open(path)
    file.add(record(1))
    before = path.read_bytes()
    assert file.all() == (record(1),)
    path.write_bytes(b"" if do == "emptied" else b"x" * len(before))
    with pytest.raises(StorageError):
        assert not file.changed() or file.all()
    file.close()
    path.write_bytes(before)
    assert TokenFile.open(path).all() == (record(1),)
