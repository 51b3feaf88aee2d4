"""Looks for inputs whose cost grows faster than they do: a piece of an example, many times."""

import random
import time
from collections.abc import Iterator, Sequence

from tests.support.fuzzing.targets import Check

SMALL_BYTES = 2**17
TIMES = 4
"""The large input is so many times the small one."""

WORST_RATIO = 9.0
"""Largest ratio of their costs: linear work has TIMES, quadratic work its square. Between them is room for noise."""

NOTICED_SECONDS = 0.5
"""Smallest cost that is judged: below it, noise is as large."""


def pumps(examples: Sequence[bytes], count: int, seed: int = 0) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yields the beginning of an example, a piece of it, and its end."""
    rng = random.Random(seed)
    for _ in range(count):
        data = rng.choice(examples)
        start = rng.randint(min(4, len(data)), len(data))
        end = min(len(data), start + rng.choice((1, 3, 10, 40, 200)))
        if end > start:
            yield data[:start], data[start:end], data[end:]


def ratio(check: Check, pump: tuple[bytes, bytes, bytes]) -> float:
    """Returns the cost of the large input divided by that of the small one; 0 where both are too small to be compared.

    Each is the time of the processor, the least of three.
    """
    before, piece, after = pump
    large = before + piece * (TIMES * SMALL_BYTES // len(piece)) + after
    if _seconds(check, large) < NOTICED_SECONDS:
        return 0.0
    small = before + piece * (SMALL_BYTES // len(piece)) + after
    return min(_seconds(check, large) for _ in range(3)) / min(_seconds(check, small) for _ in range(3))


def _seconds(check: Check, data: bytes) -> float:
    started = time.process_time()
    check(data)
    return time.process_time() - started
