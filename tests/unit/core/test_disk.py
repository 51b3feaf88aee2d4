"""Files that callers name: opened without links, and read on threads of their own."""

import asyncio
import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest

from turnwire.core.disk import LOOK_ONLY, MAX_FILE_READS, on_file_thread, open_without_links

DESCRIPTORS = Path("/dev/fd")
READ = os.O_RDONLY
LOOK = LOOK_ONLY


@pytest.fixture(params=["to read", "to look"])
def flags(request: pytest.FixtureRequest) -> int:
    """Flags that read a file and flags that only look at it."""
    if request.param == "to look":
        if LOOK is None:
            pytest.skip("this system has no O_PATH")
        return LOOK
    return READ


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
        if flags == READ:
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
    if LOOK is None:
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
    before = len(list(DESCRIPTORS.iterdir()))
    for path in ("one/two/link.txt", "far/a.txt", "missing/a.txt", "one/two/a.txt/x"):
        with pytest.raises(OSError, match=r"."):
            open_without_links(folder / path, flags)
    assert len(list(DESCRIPTORS.iterdir())) == before


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
