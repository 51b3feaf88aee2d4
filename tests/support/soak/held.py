"""Resources of a server process, and the check that it holds no more than before."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

RESIDENT_SHARE = 1.15
"""Memory after the churn, for that of before: caches of the libraries and holes between what is kept."""

RESIDENT_BYTES = 48 * 2**20
"""Memory beside that share."""

USED_SHARE = 1.1
"""Largest ratio of memory in use after the churn to that before, as the C library reports it."""

USED_BYTES = 8 * 2**20
"""Used memory beside that share: caches that fill."""

DATABASE_BYTES = 2 * 2**20
"""Growth of the file that is always allowed: stored requests, usage, and pages that wait for the next shrinking."""

REMEMBERED_BYTES = 1024
"""Growth of the file allowed for each action: responses to named requests are kept for a day."""

THREADS = 4
"""Threads that may be there besides: a pool begins one when more wait at once than ever before, up to its bound."""

DESCRIPTORS = 4
"""Descriptors that may be there besides: connections of the HTTP clients that are kept for the next call."""


class Held(Struct, frozen=True):
    """Resources of a server process at a moment of rest."""

    tasks: dict[str, int]
    """Its asyncio tasks, by the function that each runs."""
    threads: dict[str, int]
    """Its threads, by name; pools have N for their numbers."""
    native_threads: int
    """Threads, those of libraries in C included."""
    descriptors: dict[str, int]
    """Open descriptors, by what they lead to."""
    resident_bytes: int
    """Memory, after freed memory was given back."""
    used_bytes: int
    """Memory in use of that which the C library manages; 0 where it does not report it. Resident memory beyond that is
    code, Python's own small objects, and holes between what is used, which grow with all that comes and goes."""
    objects: dict[str, int]
    """Python's objects that the collector of garbage knows, by type."""
    database_bytes: int = 0
    """The database file and what SQLite keeps beside it."""
    files: tuple[str, ...] = ()
    """Names of the files in the server's folder and in its folder for temporary files."""

    def line(self) -> str:
        """Returns the counts as one line."""
        return (
            f"{self.resident_bytes / 2**20:.1f} MiB, {self.used_bytes / 2**20:.1f} used, "
            f"{sum(self.tasks.values())} tasks, {self.native_threads} threads, "
            f"{sum(self.descriptors.values())} descriptors, {sum(self.objects.values())} objects, "
            f"{len(self.files)} files, database {self.database_bytes / 2**20:.1f} MiB"
        )


def leaks(before: Held, after: Held, done: int) -> list[str]:
    """Returns what is held now and was not before, for people; nothing when all is given back.

    Args:
        before: At rest, when everything had been done a few times.
        after: At rest, after the churn.
        done: How many things were done between the two.
    """
    found = [f"tasks: {name} +{more}" for name, more in _more(before.tasks, after.tasks)]
    if after.native_threads > before.native_threads + THREADS:
        named = ", ".join(f"{name} +{more}" for name, more in _more(before.threads, after.threads))
        found.append(f"threads: {before.native_threads} -> {after.native_threads}: {named}")
    if sum(after.descriptors.values()) > sum(before.descriptors.values()) + DESCRIPTORS:
        found += [f"descriptors: {name} +{more}" for name, more in _more(before.descriptors, after.descriptors)]
    if after.resident_bytes > before.resident_bytes * RESIDENT_SHARE + RESIDENT_BYTES:
        found.append(f"memory: {before.resident_bytes >> 20} -> {after.resident_bytes >> 20} MiB")
    if after.used_bytes > before.used_bytes * USED_SHARE + USED_BYTES:
        found.append(f"used memory: {before.used_bytes >> 20} -> {after.used_bytes >> 20} MiB")
    if after.database_bytes > before.database_bytes + DATABASE_BYTES + REMEMBERED_BYTES * done:
        found.append(f"database: {before.database_bytes >> 10} -> {after.database_bytes >> 10} KiB")
    found += [f"file: {name}" for name in after.files if name not in before.files]
    return found


def grown(before: Held, after: Held, count: int = 8) -> str:
    """Returns the types of which there are most objects more than before, as one line."""
    most = sorted(_more(before.objects, after.objects), key=lambda one: -one[1])[:count]
    return ", ".join(f"{name} +{more}" for name, more in most)


def _more(before: dict[str, int], after: dict[str, int]) -> Iterator[tuple[str, int]]:
    for name, count in after.items():
        if count > before.get(name, 0):
            yield name, count - before.get(name, 0)


def files_in(*folders: Path) -> tuple[str, ...]:
    """Returns the names of all files below some folders, sorted."""
    return tuple(sorted(str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*")))
