"""The memory of this process: what the system gives to it, and what its C library makes of that."""

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Protocol

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Returns the resident memory of this process; None if the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def trim() -> None:
    """Gives memory back that the allocator keeps, where it can (glibc). Takes some milliseconds for each gigabyte."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Memory(Protocol):
    """The memory of a process, as its C library has it."""

    def held(self) -> int:
        """Returns how many bytes the process has of the system."""

    def used(self) -> int:
        """Returns how many bytes of those that the library manages are used."""

    def give_back(self) -> None:
        """Gives back every whole page that is free."""


class _Counts(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class GlibcMemory:
    """The memory of this process under glibc 2.33 or newer. Its functions let other threads run Python meanwhile."""

    def __init__(self) -> None:
        """Raises OSError or AttributeError: another C library, or another system."""
        self._counts = ctypes.CDLL(None).mallinfo2
        self._counts.restype = _Counts
        if resident_bytes() is None:
            raise OSError(f"{_STATM} cannot be read")

    def held(self) -> int:
        """Returns the resident memory."""
        return resident_bytes() or 0

    def used(self) -> int:
        """Returns what is used of the heaps, and of blocks that are mapped by themselves."""
        counts = self._counts()
        return int(counts.uordblks + counts.hblkhd)

    def give_back(self) -> None:
        """Gives back every whole page that is free, in all heaps."""
        trim()


def this_process() -> Memory | None:
    """Returns the memory of this process; None when its C library cannot tell."""
    try:
        return GlibcMemory()
    except (AttributeError, OSError):
        return None
