"""JSON of any size as values, one at a time."""

import io

import pytest

from tests.support.fakes.foreign_archives import SMALL, as_json
from turnwire.domain.errors import ArchiveInvalid
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.documents import documents, lines


def _values(content: bytes, bounds: ArchiveLimits = SMALL) -> list[tuple[str, object]]:
    return list(documents(io.BytesIO(content), bounds))


@pytest.mark.parametrize(
    "value", [[], {}, [{}], [[], [[]]], [1, -2.5, 1e3, True, None, "a", "ä\n"], {"a": {"b": [{"c": 1}, []]}}]
)
def test_values_are_those_of_the_text(value: object) -> None:
    """Items of an array one by one, everything else as a whole."""
    expected = [(f"[{index}]", item) for index, item in enumerate(value)] if isinstance(value, list) else [("", value)]
    assert _values(as_json(value)) == expected
    assert _values(b"\xef\xbb\xbf \n" + as_json(value) + b"\n") == expected


def test_values_may_be_longer_than_a_chunk() -> None:
    """And end anywhere in one."""
    value = [{"text": "ö" * length, "number": 10 ** (length % 18)} for length in range(1, 300)]
    assert [item for _, item in _values(as_json(value))] == value


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """So that every text can be stored."""
    [(_, text)] = _values(b'["a\\ud800b"]')
    assert isinstance(text, str) and text.encode() and text[0] == "a" and text[-1] == "b"
    [(_, text)] = _values(b'["a long enough text \\ude00 \\ud83d\\ude00 \\\\ude00 \\n"]')
    assert text == "a long enough text \ufffd \U0001f600 \\ude00 \n"
    assert _values(b'["\\ud83d\\ude00"]') == [("[0]", "\U0001f600")]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"[1, 2, tru]", "[2]"),
        (b'[1, {"a": }]', "[1]"),
        (b"[1] x", "[1]"),
        (b'{"a": 1} {}', ""),
        (b"[1, {", "[1]"),
        (b"[1, " + b"7" * 5000 + b"]", "[1]"),
        (b"[1e99999999999999999999]", "[0]"),
        (b"[1, " + b"[" * 21 + b"]" * 21 + b"]", "[1]"),
        (b"[[" + b"0," * 3000 + b"0]]", "[0]"),
        (b'[1, "' + b"x" * 200_000 + b'"]', "[1]"),
        (b"[1, 1e400]", "[1]"),
        (b"[1, 12345678901234567890]", "[1]"),
        (b'[1, "\xed\xa0\x80"]', "[1]"),
        (b'[1, {"\xc0\x80": 1}]', "[1]"),
    ],
)
def test_the_place_of_what_is_wrong_is_told(content: bytes, place: str) -> None:
    """Although a parser reads ahead."""
    with pytest.raises(ArchiveInvalid) as refused:
        _values(content)
    assert refused.value.metadata.get("place", "") == place


def test_bounds_are_for_each_value() -> None:
    """Many values are not one large one."""
    value = [{"text": "x" * 1000, "list": [0] * 500} for _ in range(300)]
    assert len(_values(as_json(value))) == 300


def test_lines_have_numbers() -> None:
    """Empty ones too."""
    assert list(lines(io.BytesIO(b'{"a": 1}\n\n{"a": 2}'), SMALL)) == [(1, {"a": 1}), (3, {"a": 2})]
    with pytest.raises(ArchiveInvalid) as refused:
        list(lines(io.BytesIO(b"{}\n" + b'{"a":"' + b"x" * 200_000), SMALL))
    assert refused.value.metadata["line"] == "2"
