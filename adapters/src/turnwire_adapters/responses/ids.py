"""Ids of the OpenAI API, made of Turnwire's: nothing has to be stored to find what one names.

    resp_  session, turn, two digits of the segment        conv_  session
    msg_, fc_, fco_, rs_, mcp_, mcpr_, call_  session, message, four digits of the part

An id such as `ses_` and 32 hexadecimal digits becomes 22 characters of base64url. Ids of another form, as imported
sessions may have, go in as they are.
"""

import base64
import binascii
import re
from typing import NamedTuple

_PREFIXES = {"session": "ses_", "turn": "trn_", "message": "msg_"}
_OWN_FORM = re.compile(r"[0-9a-f]{32}")
_FOREIGN = "x."


class ResponseId(NamedTuple):
    """Content of the id of a response."""

    session_id: str
    turn_id: str
    segment: int
    """Which part of the turn, from 0: another one begins after each wait for the client."""


class ItemId(NamedTuple):
    """Content of the id of an item or a call."""

    session_id: str
    message_id: str
    part: int
    """The index of the part."""


class UnknownIdError(ValueError):
    """A text that is no id of this adapter."""


def response_id(session_id: str, turn_id: str, segment: int) -> str:
    """Returns the id of a response."""
    return f"resp_{_pack(session=session_id, turn=turn_id)}{segment:02x}"


def conversation_id(session_id: str) -> str:
    """Returns the id of a conversation."""
    return f"conv_{_pack(session=session_id)}"


def item_id(prefix: str, session_id: str, message_id: str, index: int) -> str:
    """Returns the id of an item, or of a call, with a prefix such as `msg_`."""
    return f"{prefix}{_pack(session=session_id, message=message_id)}{index:04x}"


def read_response_id(text: str) -> ResponseId:
    """Returns what an id names. Raises UnknownIdError."""
    body, segment = _split(text, "resp_", 2)
    session_id, turn_id = _unpack(body, "session", "turn")
    return ResponseId(session_id, turn_id, segment)


def read_conversation_id(text: str) -> str:
    """Returns the session that an id names. Raises UnknownIdError."""
    if not text.startswith("conv_"):
        raise UnknownIdError(text)
    return _unpack(text.removeprefix("conv_"), "session")[0]


def read_item_id(text: str) -> ItemId:
    """Returns what the id of an item or of a call names. Raises UnknownIdError."""
    prefix, underscore, _ = text.partition("_")
    body, index = _split(text, prefix + underscore, 4)
    session_id, message_id = _unpack(body, "session", "message")
    return ItemId(session_id, message_id, index)


def _pack(**ids: str) -> str:
    bare = {kind: value.removeprefix(_PREFIXES[kind]) for kind, value in ids.items()}
    own = all(_OWN_FORM.fullmatch(bare[kind]) and value.startswith(_PREFIXES[kind]) for kind, value in ids.items())
    if own:
        return "".join(_encode(bytes.fromhex(value)) for value in bare.values())
    return _FOREIGN + _encode("\0".join(ids.values()).encode())


def _unpack(body: str, *kinds: str) -> list[str]:
    try:
        if body.startswith(_FOREIGN):
            values = _decode(body.removeprefix(_FOREIGN)).decode().split("\0")
        else:
            data = _decode(body) if len(kinds) == 1 else b"".join(_decode(body[at : at + 22]) for at in (0, 22))
            if len(body) != 22 * len(kinds):
                raise UnknownIdError(body)
            values = [_PREFIXES[kind] + data[16 * at : 16 * at + 16].hex() for at, kind in enumerate(kinds)]
    except (ValueError, binascii.Error):
        raise UnknownIdError(body) from None
    if len(values) != len(kinds) or not all(values):
        raise UnknownIdError(body)
    return values


def _split(text: str, prefix: str, digits: int) -> tuple[str, int]:
    if not text.startswith(prefix) or not prefix.endswith("_") or not re.fullmatch(r"[0-9a-f]+", text[-digits:]):
        raise UnknownIdError(text)
    return text[len(prefix) : -digits], int(text[-digits:], 16)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
