"""A disk that fails as told: the folder of a server whose system calls go through `shim.c`.

The shim is compiled by the machine's C compiler, and needs Linux: `compiled` says why there is none.
"""

import contextlib
import errno
import mmap
import shutil
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from enum import IntEnum
from pathlib import Path

from tests.support.disk.recording import Recording
from tests.support.servers.process import ServerProcess, server_process

_RULE = struct.Struct("=iiiiiiiIII24s")
_RULES = 16

KILL = 9999
"""The error of a call that its process does not survive: SIGKILL instead of it."""


class Call(IntEnum):
    """Kinds of requests of a process to its disk."""

    READ = 1
    WRITE = 2
    SYNC = 3
    OPEN = 4
    TRUNCATE = 5
    UNLINK = 6
    RENAME = 7


def compiled(folder: Path) -> Path | str:
    """Returns the compiled shim, made in a folder; or a sentence that says why there is none."""
    if sys.platform != "linux":
        return "disks are made to fail by LD_PRELOAD, as Linux has it"
    if (compiler := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")) is None:
        return "there is no C compiler, with which disks are made to fail"
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [
        compiler,
        "-O1",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-ldl",
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return library if done.returncode == 0 else f"the shim does not compile here: {done.stderr}"


class Disk:
    """The disk of one folder, with at most 16 rules at a time. Others use the folder as usual."""

    def __init__(self, library: Path, aside: Path, *, is_recorded: bool = False) -> None:
        """Makes the folder `data`, and beside it what the shim needs.

        Args:
            library: The compiled shim.
            aside: A folder of the test.
            is_recorded: Whether all that is written is recorded; see `recording`.
        """
        self.folder = aside.resolve() / "data"
        self.folder.mkdir()
        self.database = self.folder / "turnwire.db"
        self._record = aside / "record" if is_recorded else None
        rules = aside / "rules"
        rules.write_bytes(bytes(_RULES * _RULE.size))
        with rules.open("r+b") as file:
            self._rules = mmap.mmap(file.fileno(), 0)
        self._count = 0
        self.environ = {"LD_PRELOAD": str(library), "DISK_SHIM_ROOT": str(self.folder), "DISK_SHIM_RULES": str(rules)}
        if self._record is not None:
            self._record.touch()
            self.environ["DISK_SHIM_RECORD"] = str(self._record)

    @contextlib.asynccontextmanager
    async def server(self, toml: str = "") -> AsyncIterator[ServerProcess]:
        """Runs a server on this disk, with its database in the folder; kills it at the end."""
        async with server_process(self.folder, toml, self.environ, forked=False) as server:
            yield server

    def fail(
        self,
        call: Call,
        error: int = 0,
        *,
        suffix: str = "",
        after: int = 0,
        count: int = -1,
        permille: int = 1000,
        delay_ms: int = 0,
        is_short: bool = False,
        seed: int = 1,
    ) -> int:
        """Lets calls fail from now on, also of a server that runs; returns the number of the rule.

        Args:
            call: Which calls.
            error: The errno that they end with; 0 lets them through, later or in part. KILL kills the process.
            suffix: How the path of their file ends; "unnamed" for a file without a name.
            after: So many of them go through first.
            count: Then so many fail; -1 for all.
            permille: The chance of each to fail.
            delay_ms: How long each takes, unless the disk is healed before.
            is_short: Whether half of the bytes are read or written.
            seed: Begins the chances.
        """
        assert self._count < _RULES
        number, self._count = self._count, self._count + 1
        rule = (call, error, after, count, permille, delay_ms, is_short, seed & 0xFFFFFFFF or 1, 0, 0, suffix.encode())
        _RULE.pack_into(self._rules, number * _RULE.size, *rule)
        return number

    def hits(self, number: int) -> int:
        """Returns how many calls have failed by a rule."""
        return int(_RULE.unpack_from(self._rules, number * _RULE.size)[9])

    def heal(self) -> None:
        """Lets nothing fail any more."""
        self._rules[:] = bytes(len(self._rules))
        self._count = 0

    def recorded_bytes(self) -> int:
        """Returns how long the record is: what was written by now ends before there."""
        assert self._record is not None
        return self._record.stat().st_size

    def recording(self) -> Recording:
        """Returns what was written, synced and named so far."""
        assert self._record is not None
        return Recording(self._record.read_bytes(), self.folder)


ERRORS = {name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR", "EACCES", "EMFILE")}
"""Errors by their names, for the ids of tests."""
