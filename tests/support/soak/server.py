"""`turnwire`, and a signal with which it writes down what it holds.

    python -m tests.support.soak.server FILE serve …

At SIGUSR1 it collects garbage, gives freed memory back, and writes FILE: see `held.Held`. The server itself has no such
signal: what a process holds is nobody's business but its own.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import turnwire.cli


def _write(file: Path) -> None:
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    held = {
        "tasks": _counted(f"{_name(task)}" for task in asyncio.all_tasks()),
        "threads": _counted(re.sub(r"\d+", "N", thread.name) for thread in threading.enumerate()),
        "native_threads": len(list(Path("/proc/self/task").iterdir())),
        "descriptors": _counted(_descriptors()),
        "resident_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "used_bytes": _used_bytes(),
        "objects": _counted(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects()),
    }
    part = file.with_suffix(".part")
    part.write_text(json.dumps(held))
    part.rename(file)


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _used_bytes() -> int:
    """Returns what is used of the heaps, and of blocks that are mapped by themselves; 0 before glibc 2.33."""
    try:
        counts = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    counts.restype = _Mallinfo
    found = counts()
    return int(found.uordblks + found.hblkhd)


def _name(task: "asyncio.Task[object]") -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_coro()))


def _descriptors() -> Iterable[str]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this very list is gone by now
            yield re.sub(r"\d+", "N", str(link.readlink()))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


if __name__ == "__main__":
    target = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, lambda *_: _write(target))
    turnwire.cli.main()
