"""How much JSON foreign bytes hold, whatever the pieces in which they come."""

import json
import random
from typing import Any

import pytest

from turnwire.tools.mcp.wire import sizes
from turnwire.tools.mcp.wire.sizes import EventSize, JsonSize, TooLargeError


def values_in(value: Any) -> int:
    """Counts commas and brackets outside of strings, of a parsed value."""
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(values_in, value))
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(values_in, value.values()))
    return 0


def made(dice: random.Random, depth: int = 0) -> Any:
    """Makes a value with texts that look like JSON."""
    texts = ['"', "\\", '\\"', ",,[{", '{"a":[1,2', "\\\\", "é\\u0022", ""]
    match dice.randrange(4 if depth < 4 else 2):
        case 0:
            return dice.randrange(1000)
        case 1:
            return "".join(dice.choices(texts, k=dice.randrange(6)))
        case 2:
            return [made(dice, depth + 1) for _ in range(dice.randrange(5))]
        case _:
            return {dice.choice(texts) + str(key): made(dice, depth + 1) for key in range(dice.randrange(5))}


@pytest.mark.parametrize("seed", range(200))
def test_values_are_counted_outside_of_strings(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly as many are too many as there are, in any pieces."""
    dice = random.Random(seed)
    value = made(dice)
    text = json.dumps(value, ensure_ascii=dice.random() < 0.5).encode()
    places = sorted(dice.choices(range(len(text) + 1), k=dice.randrange(8)))
    pieces = [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
    count = values_in(value)
    for most in (count, count - 1):
        monkeypatch.setattr(sizes, "MAX_VALUES", most)
        size = JsonSize()
        if most == count:
            for piece in pieces:
                size.add(piece)
        else:
            with pytest.raises(TooLargeError, match="values"):
                for piece in pieces:
                    size.add(piece)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("begin", [b"data:", b"data: "])
def test_each_event_has_its_own_size(begin: bytes, end: bytes, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty line ends it; quotes in comments and names hide nothing of its data."""
    monkeypatch.setattr(sizes, "MAX_VALUES", 10)
    full = b"[1,2,3,4,5,6,7,8,9,0]"  # ten: a bracket and nine commas
    stream = end.join([b': it"s', b'id: "', b"event: message", begin + full, b"", begin + full, b"", b""])
    size = EventSize()
    for first in range(0, len(stream), piece):
        size.add(stream[first : first + piece])
    more = end.join([b': "', begin + full, b': "', begin + b"[]", b"", b""])
    with pytest.raises(TooLargeError):
        for first in range(0, len(more), piece):
            size.add(more[first : first + piece])


def test_bytes_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a text without a single value."""
    monkeypatch.setattr(sizes, "MAX_MESSAGE_BYTES", 10)
    size = JsonSize()
    size.add(b'"23456789')
    size.add(b"0")
    with pytest.raises(TooLargeError, match="10 bytes"):
        size.add(b"1")
