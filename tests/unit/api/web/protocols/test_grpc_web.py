"""Bodies of base64 that were made to cost time: they are read before their caller is known."""

import binascii
import time

import pytest

from turnwire.api.web.protocols.grpc_web import _from_text

MANY = 4 * 2**20
QUICK_SECONDS = 0.5


def test_base64_in_pieces_is_one_text() -> None:
    """Also with lines between them."""
    assert _from_text(b"AA==\r\nAQI=Aw==\n") == bytes(4)[:1] + b"\x01\x02\x03"


@pytest.mark.parametrize("piece", [b"AA==", b"A \n\t"])
def test_base64_in_a_million_pieces_is_refused_at_once(piece: bytes) -> None:
    """No client cuts a message so, and each piece would cost time."""
    started = time.thread_time()
    if b"=" in piece:
        with pytest.raises(binascii.Error):
            _from_text(piece * (MANY // len(piece)))
    else:
        _from_text(piece * (MANY // len(piece)))
    assert time.thread_time() - started < QUICK_SECONDS
