"""JSON in pieces."""

import json
from base64 import b64encode

import pytest

from turnwire.providers.request.encoding import Base64File, encoded, encoded_in_pieces


@pytest.mark.parametrize("size", [0, 1, 2, 3, 393_216, 393_217, 1_000_000])
def test_files_are_strings_in_base64(size: int) -> None:
    """Whatever their size is, and however many there are."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    value = {"a": "é\n", "url": Base64File("data:image/png;base64,", data), "list": [Base64File("", data), 1.0]}
    pieces = encoded_in_pieces(value)
    text = b64encode(data).decode()
    whole = {"a": "é\n", "url": f"data:image/png;base64,{text}", "list": [text, 1.0]}
    assert b"".join(pieces) == encoded(whole)
    assert json.loads(b"".join(pieces)) == whole


@pytest.mark.parametrize("word", ["a", 'é"\n', "日", "🎈", "\x00\u2028"])
def test_long_texts_are_encoded_a_bit_at_a_time(word: str) -> None:
    """Whatever characters they have, to the same bytes; no piece is long."""
    value = {"content": [{"text": word * 300_000}, {"short": word}], "also": (word * 70_000, word * 65_536)}
    pieces = encoded_in_pieces(value)
    assert b"".join(pieces) == encoded(value)
    assert max(map(len, pieces)) < 500_000


def test_what_has_no_form_is_an_error() -> None:
    """And not a text."""
    with pytest.raises(TypeError, match="object has no form"):
        encoded_in_pieces({"a": object()})
