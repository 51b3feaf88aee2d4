"""Draws mutants by chance: as many of each kind, so that the rare kinds are looked at too."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosmic_ray.work_item import MutationSpec, WorkItem

from tests.support.mutants.kinds import KINDS, Position, mutated, positions

ROOMS = ("core", "storage", "feed", "api", "providers")
"""Where mutants are made, below `server/turnwire`."""


def drawn(checkout: Path, seed: int, count: int, rooms: Sequence[str] = ROOMS) -> list[WorkItem]:
    """Returns the mutants of a seed, in the order in which they are to be tried; the same for the same checkout.

    Args:
        checkout: The folder with the sources.
        seed: Decides which are drawn.
        count: How many; fewer when there are no more.
        rooms: Folders and modules below `server/turnwire`.
    """
    rng = random.Random(seed)
    found = {kind: _shuffled(checkout, rooms, kind, rng) for kind in KINDS}
    items: list[WorkItem] = []
    while found and len(items) < count:
        for kind in list(found):
            if len(items) == count:
                break
            if (item := next(found[kind], None)) is None:
                del found[kind]
            else:
                items.append(item)
    return items


def _shuffled(checkout: Path, rooms: Sequence[str], kind: str, rng: random.Random) -> Iterator[WorkItem]:
    modules = [module for room in rooms for module in _modules(checkout / "server/turnwire" / room)]
    places = [
        (module, name, occurrence, position)
        for module in modules
        for name in KINDS[kind]
        for occurrence, position in enumerate(positions(module.read_text(), name))
    ]
    rng.shuffle(places)
    return _usable(checkout, places)


def _modules(room: Path) -> list[Path]:
    return [room] if room.is_file() else sorted(room.rglob("*.py"))


def _usable(checkout: Path, places: list[tuple[Path, str, int, Position]]) -> Iterator[WorkItem]:
    for module, name, occurrence, (start, end) in places:
        if mutated(module.read_text(), name, occurrence) is not None:
            path = str(module.relative_to(checkout))
            job = hashlib.sha256(f"{path} {name} {occurrence}".encode()).hexdigest()[:16]
            spec = MutationSpec(path, name, occurrence, start, end)
            yield WorkItem.single(job, spec)
