"""The file of a Unix socket: never more open than it is configured."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwire.api.grpc.unix_socket import SocketAccess, is_taken, socket_access, socket_path


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    assert os.umask(before) == 0


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the socket will be, relative because addresses of sockets are short."""
    monkeypatch.chdir(tmp_path)
    return Path("t.sock")


def _bound(path: Path) -> os.stat_result:
    """Binds a socket and returns what its file is at once."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        return path.lstat()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o777, 0o000])
def test_socket_has_its_mode_in_the_end_and_is_private_before(path: Path, mode: int) -> None:
    """No one else can connect between the two."""
    with socket_access(f"unix:{path}", SocketAccess(mode)):
        assert stat.S_IMODE(_bound(path).st_mode) == 0o600
    assert stat.S_IMODE(path.lstat().st_mode) == mode


def test_socket_has_its_group(path: Path) -> None:
    """One that the account may give."""
    others = [group for group in os.getgroups() if group != os.getegid()]
    group = 12_345 if os.geteuid() == 0 else others[0] if others else os.getegid()
    with socket_access(f"unix:{path}", SocketAccess(0o660, group)):
        assert _bound(path).st_gid == os.getegid()
    found = path.lstat()
    assert (found.st_gid, found.st_uid, stat.S_IMODE(found.st_mode)) == (group, os.geteuid(), 0o660)


def test_group_that_may_not_be_given_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket stays private."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(OSError, match=r"cannot give the socket t\.sock the group 12345"):  # noqa: SIM117 - the inner ends
        with socket_access(f"unix:{path}", SocketAccess(0o660, 12_345)):
            _bound(path)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "file"])
def test_file_that_took_the_place_of_the_socket_is_left_alone(path: Path, kind: str) -> None:
    """A link does not open what it leads to."""
    secret = Path("secret")
    secret.touch(0o600)
    with pytest.raises(OSError, match="is not the socket that the server made"):  # noqa: SIM117 - the inner ends
        with socket_access(f"unix:{path}", SocketAccess(0o666)):
            _bound(path)
            path.unlink()
            path.symlink_to(secret) if kind == "link" else path.hardlink_to(secret)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_umask_comes_back_when_the_address_is_taken(path: Path) -> None:
    """The fixture checks it."""
    with pytest.raises(OSError, match="taken"), socket_access(f"unix:{path}", SocketAccess(0o666)):
        raise OSError("taken")


def test_other_addresses_have_no_file(tmp_path: Path) -> None:
    """The umask stays as it is."""
    with socket_access("127.0.0.1:1", SocketAccess(0o666, 12_345)):
        (tmp_path / "a").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666


@pytest.mark.parametrize(
    ("listen", "path"),
    [
        ("unix:t.sock", "t.sock"),
        ("unix:/run/t.sock", "/run/t.sock"),
        ("unix:///run/t.sock", "/run/t.sock"),
        ("unix:a%20b.sock", "a b.sock"),
    ],
)
def test_path_is_the_one_that_grpc_uses(listen: str, path: str) -> None:
    """Relative, absolute, and with escapes."""
    assert socket_path(listen) == Path(path)


def test_socket_is_taken_while_a_program_listens(path: Path) -> None:
    """Also when the program accepts nobody; not before it listens, and not when it is gone."""
    listen = f"unix:{path}"
    assert not is_taken(listen)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert not is_taken(listen)
        server.listen(0)
        for _ in range(5):
            assert is_taken(listen)
    assert path.exists()
    assert not is_taken(listen)


def test_what_is_no_socket_is_not_taken(path: Path) -> None:
    """A file in its place is for gRPC to refuse; other addresses are not asked."""
    path.touch()
    assert not is_taken(f"unix:{path}")
    assert not is_taken(f"unix:{'x' * 200}")
    assert not is_taken("127.0.0.1:1")
