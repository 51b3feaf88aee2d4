"""The memory of this process, as its C library has it."""

import ctypes
import os
from pathlib import Path
from typing import Protocol


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
        library = ctypes.CDLL(None)
        self._counts, self._trim = library.mallinfo2, library.malloc_trim
        self._counts.restype = _Counts
        self._trim.argtypes = [ctypes.c_size_t]
        self.held()

    def held(self) -> int:
        """Returns the resident memory."""
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def used(self) -> int:
        """Returns what is used of the heaps, and of blocks that are mapped by themselves."""
        counts = self._counts()
        return int(counts.uordblks + counts.hblkhd)

    def give_back(self) -> None:
        """Gives back every whole page that is free, in all heaps."""
        self._trim(0)


def this_process() -> Memory | None:
    """Returns the memory of this process; None when its C library cannot tell."""
    try:
        return GlibcMemory()
    except (AttributeError, OSError):
        return None
