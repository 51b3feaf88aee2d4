"""Opening files that callers name: the store's own are looked at, never opened."""

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwire.core.intake import readable_files
from turnwire.core.intake.readable_files import (
    LOOK_ONLY,
    MAX_FILE_READS,
    ReadableFiles,
    is_allowed_directory,
    on_file_thread,
    open_without_links,
)
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
"""Program of another process: exit code 7 for a file that is locked."""


@pytest.fixture(params=["by descriptor", "by path"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: with O_PATH, and as on systems without it."""
    if request.param == "by path":
        monkeypatch.setattr(readable_files, "LOOK_ONLY", None)
    elif readable_files.LOOK_ONLY is None:
        pytest.skip("this system has no O_PATH")
    return str(request.param)


@pytest.fixture
def own(way: str, tmp_path: Path) -> Path:
    """A file of the store, to be opened in each way."""
    path = tmp_path / "own.db"
    path.write_bytes(b"database")
    return path


@pytest.fixture
def roots(way: str, tmp_path: Path) -> tuple[Path, Path]:
    """A folder that may be read and one outside, each with a file at sub/deep/a.txt."""
    root, outside = tmp_path.resolve() / "root", tmp_path.resolve() / "outside"
    for folder in (root, outside):
        (folder / "sub" / "deep").mkdir(parents=True)
        (folder / "sub" / "deep" / "a.txt").write_text(folder.name)
    return root, outside


def _refused(files: ReadableFiles, path: str | Path) -> str:
    """Returns why a file is not read."""
    with pytest.raises(InvalidRequest) as caught:
        files.read(str(path), FIELD)
    return str(caught.value)


def _is_locked(path: Path) -> bool:
    """Returns whether another process finds the file locked."""
    return subprocess.run([sys.executable, "-c", LOCKED_ELSEWHERE, str(path)], check=False).returncode == 7


def _below(root: Path, **settings: Any) -> ReadableFiles:
    """Returns the files below a folder, which is the session's directory too."""
    return ReadableFiles(**{"directory": str(root), "roots": (root,), "max_bytes": 100, **settings})


def _readable(own: Path, max_bytes: int = 100) -> ReadableFiles:
    identity = FileIdentity.of(own.stat())
    return _below(own.parent, max_bytes=max_bytes, own_files=lambda: frozenset((identity,)))


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
    lambda own: f"//{own}",
    _hard_link,
    _symbolic_link,
    _through_a_folder_link,
]


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
        assert "of the server itself" in violation.description
        assert _is_locked(own)


def test_own_files_are_asked_for_at_each_opening(own: Path) -> None:
    """A file that the store makes later is refused as well."""
    later = own.with_name("later")
    later.write_bytes(b"text")
    known: set[FileIdentity] = set()
    readable = _below(own.parent, own_files=lambda: known)
    assert readable.read("later", FIELD) == b"text"
    known.add(FileIdentity.of(later.stat()))
    assert "of the server itself" in _refused(readable, "later")


def test_own_file_over_the_limit_is_refused_as_such(own: Path) -> None:
    """Which file it is counts before its size."""
    with pytest.raises(InvalidRequest) as caught:
        _readable(own, max_bytes=1).read(own.name, FIELD)
    assert not isinstance(caught.value, MessageTooLarge)


def test_other_files_are_read(own: Path) -> None:
    """Those beside it, within the limit."""
    own.with_name("notes.txt").write_bytes(b"12345")
    assert _readable(own).read("notes.txt", FIELD) == b"12345"
    assert _readable(own, max_bytes=5).read("notes.txt", FIELD) == b"12345"
    with pytest.raises(MessageTooLarge):
        _readable(own, max_bytes=4).read("notes.txt", FIELD)


def test_pipes_and_folders_are_not_waited_for(own: Path) -> None:
    """They are refused at once."""
    os.mkfifo(own.with_name("pipe"))
    for path in ("pipe", "."):
        assert "not a readable file" in _refused(_readable(own), path)


def test_file_without_read_permission_is_refused(own: Path) -> None:
    """Looking at it is not reading it."""
    secret = own.with_name("secret.txt")
    secret.write_bytes(b"secret")
    secret.chmod(0)
    if os.access(secret, os.R_OK):
        pytest.skip("this user may read everything")
    assert "not a readable file" in _refused(_readable(own), "secret.txt")


def _swap_when_looked_at(own: Path, target: Path) -> ReadableFiles:
    """Returns files where the store's own takes the place of another right after that one was looked at."""
    identity, looks = FileIdentity.of(own.stat()), [0]

    def own_files() -> frozenset[FileIdentity]:
        looks[0] += 1
        if looks[0] == 1:
            target.unlink()
            target.hardlink_to(own)
        return frozenset((identity,))

    return _below(own.parent, own_files=own_files)


def test_own_file_that_takes_the_place_of_another_is_not_closed(own: Path, way: str) -> None:
    """By descriptor what was looked at is read; by path the refused descriptor stays open. The locks stay."""
    target = own.with_name("notes.txt")
    target.write_bytes(b"notes")
    with own.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        if way == "by descriptor":
            assert _swap_when_looked_at(own, target).read("notes.txt", FIELD) == b"notes"
        else:
            assert "of the server itself" in _refused(_swap_when_looked_at(own, target), "notes.txt")
        assert _is_locked(own)


def test_folder_that_becomes_a_link_after_the_check_is_not_followed(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file outside has the same name; nothing of it is returned."""
    root, outside = roots
    resolve = ReadableFiles._resolve

    def resolve_and_swap(self: ReadableFiles, path: str, field: str) -> Path:
        found = resolve(self, path, field)
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(outside / "sub")
        return found

    monkeypatch.setattr(ReadableFiles, "_resolve", resolve_and_swap)
    assert "not a readable file" in _refused(_below(root), "sub/deep/a.txt")


@pytest.mark.slow
def test_folder_that_is_swapped_all_the_time_never_leads_out(roots: tuple[Path, Path]) -> None:
    """Each reading returns the file inside or is refused, whenever the swap comes."""
    root, outside = roots

    def swap() -> None:
        for _ in range(2_000):
            (root / "sub").rename(root / "moved")
            (root / "sub").symlink_to(outside / "sub")
            (root / "sub").unlink()
            (root / "moved").rename(root / "sub")

    swapping = threading.Thread(target=swap)
    swapping.start()
    found = set()
    while swapping.is_alive():
        try:
            found.add(_below(root).read("sub/deep/a.txt", FIELD))
        except InvalidRequest:
            found.add(b"refused")
    swapping.join()
    assert found <= {b"root", b"refused"}
    assert _below(root).read("sub/deep/a.txt", FIELD) == b"root"


@pytest.mark.usefixtures("way")
@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="needs a second file system that all may write to")
def test_files_of_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that is mounted below a root may be one of the kernel; a root of its own is read."""
    monkeypatch.setattr(readable_files, "KERNEL_FOLDERS", ())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        (Path(name) / "a.txt").write_text("data")
        assert "not a readable file" in _refused(_below(Path("/dev")), f"{name}/a.txt")
        assert _below(Path("/dev"), roots=(Path("/dev"), Path("/dev/shm"))).read(f"{name}/a.txt", FIELD) == b"data"


READ_A_SECOND_PROCFS = """
import os, sys
from pathlib import Path
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.domain.errors import InvalidRequest
root = Path(sys.argv[1])
assert b"TURNWIRE_TEST_KEY" in (root / "proc/self/environ").read_bytes()
files = ReadableFiles(roots=(root,), max_bytes=1_000_000)
for name in ("self/environ", "1/environ", "cpuinfo", "self/root/etc/passwd"):
    try:
        files.read(str(root / "proc" / name), "path")
    except InvalidRequest as error:
        print(error)
    else:
        sys.exit(f"{name} was read")
print(files.read(str(root / "a.txt"), "path"))
"""


@pytest.mark.slow
def test_second_mount_of_procfs_is_refused(tmp_path: Path) -> None:
    """The server's environment, with its keys, is a file there too, and no folder's name shows it."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "a.txt").write_text("data")
    mounted = f'mount -t proc proc "$0/proc" || exit 77; exec "{sys.executable}" -c "$1" "$0"'
    try:
        ended = subprocess.run(
            ["unshare", "-rmpf", "sh", "-c", mounted, str(tmp_path), READ_A_SECOND_PROCFS],
            env={**os.environ, "TURNWIRE_TEST_KEY": "secret"},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    except FileNotFoundError:
        pytest.skip("this system has no unshare")
    if ended.returncode == 77 or ended.stderr.startswith("unshare:"):
        pytest.skip("this user may not mount procfs")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "b'data'"


def test_file_that_grows_while_it_is_read_is_cut_off(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts what is read, not only what the file had when it was opened."""
    own.write_bytes(bytes(100))
    check = ReadableFiles._check

    def check_and_grow(self: ReadableFiles, status: os.stat_result, target: Path, field: str) -> None:
        check(self, status, target, field)
        if status.st_size == 100:
            os.truncate(own, 5_000_000_000)

    monkeypatch.setattr(ReadableFiles, "_check", check_and_grow)
    with pytest.raises(MessageTooLarge) as caught:
        _below(own.parent).read(own.name, FIELD)
    assert caught.value.metadata["maxBytes"] == "100"


def test_root_that_is_gone_is_refused(roots: tuple[Path, Path]) -> None:
    """With the words for any file that cannot be read; it may come back."""
    root, path, gone = roots[0], "sub/deep/a.txt", roots[0].with_name("gone")
    assert _below(root).read(path, FIELD) == b"root"
    root.rename(gone)
    assert "not a readable file" in _refused(_below(root), path)
    root.symlink_to(gone)
    assert "not below a folder" in _refused(_below(root), path)
    root.unlink()
    gone.rename(root)
    assert _below(root).read(path, FIELD) == b"root"


def test_directory_outside_the_roots_reads_nothing(roots: tuple[Path, Path]) -> None:
    """The error names the directory as the reason, and paths below a root are read."""
    root, outside = (folder / "sub" / "deep" for folder in roots)
    files = _below(root, directory=str(outside))
    assert "the session's directory is not below a folder" in _refused(files, "a.txt")
    assert "not a readable file" in _refused(files, outside / "a.txt")
    assert files.read(str(root / "a.txt"), FIELD) == b"root"


@pytest.mark.parametrize("name", ["a.txt", "/", "/etc/passwd"])
def test_without_roots_the_error_says_so(tmp_path: Path, name: str) -> None:
    """Whether the file is there or not."""
    assert "names a file of the server, and none may be read" in _refused(_below(tmp_path, roots=()), name)


def test_directories_below_a_root_are_allowed(tmp_path: Path) -> None:
    """Links are resolved, and the folder need not exist yet."""
    root = tmp_path.resolve() / "root"
    root.mkdir()
    (root / "out").symlink_to("..")
    (root / "in").symlink_to(root)
    (root / "loop").symlink_to("loop")
    for name in (".", "sub/deep", "in", "in/sub", "a/" * 2_000):
        assert is_allowed_directory(str(root / name), (root,)), name
    others = ("..", "out", "out/sub", "out/root", "loop", "../rootless", "x/../../y", "../root/sub", "x" * 300 + "/y")
    for name in others:
        assert not is_allowed_directory(str(root / name), (root,)), name
    assert not is_allowed_directory(str(root), ())


def test_path_outside_says_nothing_of_what_exists(roots: tuple[Path, Path]) -> None:
    """It must begin with a root as it is written and never go up: what exists on the way out gets no other answer."""
    root, outside = roots
    (root / "ok.txt").write_text("read")
    (outside / "file.txt").write_text("secret")
    (outside / "link").symlink_to(root)
    (root / "out").symlink_to(outside)
    ways = [
        f"{outside}/{{}}/../../root/ok.txt",
        f"{root}/../outside/{{}}/../../root/ok.txt",
        "out/{}/../../root/ok.txt",
        f"{outside}/{{}}/ok.txt",
        "out/{}/ok.txt",
        "sub/../ok.txt",
    ]
    answers = set()
    for way in ways:
        for name in ("sub", "file.txt", "link", "missing"):
            answers.add(_refused(_below(root), way.format(name)))
            assert not is_allowed_directory(str(root / way.format(name)), (root,)), way
    assert len(answers) == 1


def test_root_has_the_name_that_the_configuration_gives_it_too(roots: tuple[Path, Path]) -> None:
    """For its tenants, and for directories of sessions; what the link leads to later does not count."""
    root, name, path = roots[0], roots[0].with_name("name"), "sub/deep/a.txt"
    name.symlink_to("root")
    written = {name: root}
    assert _below(root, written_roots=written).read(f"{name}/{path}", FIELD) == b"root"
    assert _below(root, directory=str(name), written_roots=written).read(path, FIELD) == b"root"
    name.unlink()
    name.symlink_to("/")
    assert _below(root, written_roots=written).read(f"{name}/{path}", FIELD) == b"root"
    for files in (_below(root), _below(root / "other", written_roots=written)):
        assert "not a readable file" in _refused(files, f"{name}/{path}")


@pytest.fixture(params=[os.O_RDONLY, LOOK_ONLY], ids=["to read", "to look"])
def flags(request: pytest.FixtureRequest) -> int:
    """Flags that read a file and flags that only look at it."""
    if request.param is None:
        pytest.skip("this system has no O_PATH")
    return int(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three folders deep: a file, and links of each kind."""
    root = tmp_path.resolve()
    deep = root / "one" / "two"
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("hello")
    (deep / "link.txt").symlink_to("a.txt")
    (root / "near").symlink_to("one")
    (root / "far").symlink_to(deep)
    return root


def test_file_is_opened(folder: Path, flags: int) -> None:
    """The descriptor is of that file and goes to no program."""
    path = folder / "one" / "two" / "a.txt"
    descriptor = open_without_links(path, flags)
    try:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        assert not os.get_inheritable(descriptor)
        if flags == os.O_RDONLY:
            assert os.read(descriptor, 9) == b"hello"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", ["one/two/link.txt", "near/two/a.txt", "far/a.txt", "near/two/link.txt"])
def test_link_anywhere_is_refused(folder: Path, flags: int, path: str) -> None:
    """Relative or absolute, at the end or on the way, though it leads to a file that could be opened."""
    with pytest.raises(OSError, match=r"symbolic links|Not a directory") as caught:
        open_without_links(folder / path, flags)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)


def test_link_of_procfs_is_refused(folder: Path, flags: int) -> None:
    """Its target is no path, so nothing would check it."""
    with (folder / "one" / "two" / "a.txt").open() as file:
        link = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        if not link.exists():
            pytest.skip("this system has no procfs")
        with pytest.raises(OSError, match="symbolic links"):
            open_without_links(link, flags)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", errno.ENOENT),
        ("missing/a.txt", errno.ENOENT),
        ("one/two/a.txt/x", errno.ENOTDIR),
        ("x" * 256, errno.ENAMETOOLONG),
    ],
)
def test_what_is_not_there_has_the_usual_error(folder: Path, flags: int, path: str, code: int) -> None:
    """As `os.open` reports it."""
    with pytest.raises(OSError, match=r".") as caught:
        open_without_links(folder / path, flags)
    assert caught.value.errno == code


def test_folders_on_the_way_need_not_be_listed(flags: int) -> None:
    """To enter them is enough, as for `os.open`: a server may have no right to see what else is there."""
    if LOOK_ONLY is None:
        pytest.skip("this system opens no folder without reading it")
    with tempfile.TemporaryDirectory() as name:  # where another user gets, too
        closed = Path(name).resolve() / "closed"
        closed.mkdir()
        (closed / "a.txt").write_text("hello")
        (closed / "a.txt").chmod(0o644)
        closed.parent.chmod(0o711)
        closed.chmod(0o311)
        is_root = os.geteuid() == 0
        try:
            if is_root:  # who may read everything
                os.seteuid(65_534)
            with pytest.raises(PermissionError):
                list(closed.iterdir())
            os.close(open_without_links(closed / "a.txt", flags))
        finally:
            if is_root:
                os.seteuid(0)
            closed.chmod(0o700)


def test_refusals_leave_no_open_descriptor(folder: Path, flags: int) -> None:
    """Neither of the file nor of a folder on the way."""
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("one/two/link.txt", "far/a.txt", "missing/a.txt", "one/two/a.txt/x"):
        with pytest.raises(OSError, match=r"."):
            open_without_links(folder / path, flags)
    assert len(list(Path("/dev/fd").iterdir())) == before


async def test_files_that_hang_hold_up_files_alone() -> None:
    """Further reads wait for them; what else needs a thread does not."""
    may_end, names = threading.Event(), list[str]()

    def hang() -> None:
        names.append(threading.current_thread().name)
        assert may_end.wait(20)

    hanging = [asyncio.create_task(on_file_thread(hang)) for _ in range(MAX_FILE_READS)]
    waiting = asyncio.create_task(on_file_thread(threading.get_ident))
    assert await asyncio.to_thread(lambda: 1) == 1
    assert not waiting.done()
    may_end.set()
    await asyncio.gather(*hanging, waiting)
    assert len({name for name in names if name.startswith("files")}) == MAX_FILE_READS


async def test_errors_and_arguments_pass() -> None:
    """As of any call."""
    assert await on_file_thread(int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        await on_file_thread(int, "x")
