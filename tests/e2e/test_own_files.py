"""Files that the server makes itself: who may read them."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.conversation import talk
from tests.support.servers.running import connect, running_server
from turnwire.app import create_server
from turnwire.config import load_config


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of the process."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path, pattern: str) -> dict[str, int]:
    """Returns the permissions of the files by name."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob(pattern)}


async def test_files_of_the_database_are_private(tmp_path: Path) -> None:
    """All of them, while the server runs and afterwards, and after the next start."""
    for _ in range(2):
        async with running_server(tmp_path) as server, connect(server.address) as client:
            await talk(client, "hello")
            names = [f"turnwire.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock")]
            assert modes(tmp_path, "turnwire.db*") == dict.fromkeys(names, 0o600)
        assert set(modes(tmp_path, "turnwire.db*").values()) == {0o600}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("settings", "mode", "group"),
    [
        ("", 0o600, os.getegid()),
        ('socket_mode = "0660"', 0o660, os.getegid()),
        (f'socket_mode = "666"\nsocket_group = "{os.getegid()}"', 0o666, os.getegid()),
    ],
)
async def test_socket_has_the_configured_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, mode: int, group: int
) -> None:
    """And calls go through it; it is gone when the server has stopped."""
    monkeypatch.chdir(tmp_path)  # addresses of sockets are short
    Path("turnwire.toml").write_text(f'[server]\nlisten = "unix:t.sock"\n{settings}')
    async with create_server(load_config(None, {}), {}) as server, connect(server.address) as client:
        found = Path("t.sock").lstat()
        assert stat.S_ISSOCK(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (mode, group)
        await talk(client, "hello")
    assert not Path("t.sock").exists()


async def test_second_server_on_the_same_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the reason and takes nothing away. A socket that a dead server left is not in the way."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("t.sock")
    first, second = (load_config(None, {}, {"--listen": "unix:t.sock", "--db": name}) for name in ("a.db", "b.db"))
    async with create_server(first, {}) as server:
        for _ in range(2):
            with pytest.raises(OSError, match=r"cannot listen on unix:t\.sock: the address is in use"):
                async with create_server(second, {}):
                    pytest.fail("it serves")
        async with connect(server.address) as client:
            await talk(client, "hello")
    assert not Path("b.db").exists()
