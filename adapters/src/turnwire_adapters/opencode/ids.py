"""Ids of OpenCode and of Turnwire, each from the other, without a table.

OpenCode's clients sort messages and parts by id: `msg_` or `prt_`, 12 hexadecimal digits that grow with time, and 14
characters by chance. Turnwire's ids are the same prefixes and the 32 digits of a UUID of version 7. `shown` makes the
12 digits of that UUID's time and counter, and keeps all other bits in the 14 characters, so `stored` finds them again.

A client may choose the id of a message itself. Turnwire keeps that one as the `request_id` of the message.
"""

import re

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""In the order in which clients compare characters."""
_DIGITS = {character: value for value, character in enumerate(_ALPHABET)}
_BITS_62, _BITS_48 = (1 << 62) - 1, (1 << 48) - 1
_TAIL = 13
"""Characters that 74 bits need: 12 of the time that do not fit into the digits, and 62 by chance."""
_END = "0"
"""The last character of each id that was made here."""
_STORED = re.compile(r"([a-z]{3})_([0-9a-f]{32})")
_SHOWN = re.compile(r"([a-z]{3})_([0-9a-f]{12})([0-9A-Za-z]{14})")


def shown(stored_id: str) -> str:
    """Returns the id that OpenCode's clients get for one of Turnwire; another form is returned as it is."""
    match = _STORED.fullmatch(stored_id)
    if match is None:
        return stored_id
    number = int(match[2], 16)
    milliseconds, counter, chance = number >> 80, (number >> 64) & 0xFFF, number & _BITS_62
    head = (milliseconds << 12 | counter) & _BITS_48
    return f"{match[1]}_{head:012x}{_base62((milliseconds >> 36) << 62 | chance)}{_END}"


def stored(shown_id: str) -> str:
    """Returns Turnwire's id for one that `shown` made; "" for one that a client made."""
    match = _SHOWN.fullmatch(shown_id)
    if match is None or match[3][-1] != _END:
        return shown_id if _STORED.fullmatch(shown_id) else ""
    tail = 0
    for character in match[3][:_TAIL]:
        tail = tail * 62 + _DIGITS[character]
    if tail >> 74:
        return ""
    head, top, chance = int(match[2], 16), tail >> 62, tail & _BITS_62
    number = (top << 36 | head >> 12) << 80 | 0x7 << 76 | (head & 0xFFF) << 64 | 0b10 << 62 | chance
    return f"{match[1]}_{number:032x}"


def is_chosen(message_id: str) -> bool:
    """Returns whether a client chose this id of a message, in the form of OpenCode's ids."""
    return message_id.startswith("msg_") and _SHOWN.fullmatch(message_id) is not None


def _base62(number: int) -> str:
    characters = []
    for _ in range(_TAIL):
        number, digit = divmod(number, 62)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))
