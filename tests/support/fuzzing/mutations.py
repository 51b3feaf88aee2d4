"""Inputs that are almost right, the same ones each time."""

import random
from collections.abc import Iterator, Sequence

MAX_BYTES = 20_000

_ODD = (
    *(b"\x00", b"\xff", b"\n\n", b"\r", b'"', b"\\", b"\\ud800", b"{", b"}", b"[", b"]", b":", b",", b"null", b"true"),
    *(b"1e999", b"-1", b"9223372036854775808", b"{}", b"[]", b'""', b"\xed\xa0\x80", b"\xf0\x9f", b"a" * 300),
)


def mutations(examples: Sequence[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """Yields inputs that are made of examples by a few changes each: bytes changed, cut, doubled, moved, put in."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(examples))
        for _ in range(rng.choice((1, 1, 2, 4))):
            at, size = rng.randint(0, len(data)), rng.choice((1, 2, 4, 16, 64))
            match rng.randint(0, 5):
                case 0 if data:
                    data[at % len(data)] = rng.randint(0, 255)
                case 1:
                    del data[at : at + size]
                case 2:
                    data[at:at] = data[at : at + size] * rng.choice((1, 3))
                case 3:
                    data[at:at] = rng.choice(_ODD)
                case 4:
                    data[at : at + size] = rng.choice(_ODD)
                case _:
                    other = rng.choice(examples)
                    start = rng.randint(0, len(other))
                    data[at:at] = other[start : start + size * 4]
        yield bytes(data[:MAX_BYTES])
