"""Finds the end of a JSON object that comes in pieces, and reads each piece only once."""

import re

_MARK = re.compile(r'["\\{}\[\]]')


class JsonEnd:
    """Follows the pieces of one text. Keeps none of it; takes time in proportion to each piece."""

    def __init__(self) -> None:
        """Starts before the first piece."""
        self._depth = 0
        self._in_string = False
        self._escapes = False  # the next character, in a string
        self._is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether an object or a list has ended, by its brackets."""
        return self._is_over

    def read(self, piece: str) -> None:
        """Takes the next piece."""
        escaped = 0 if self._escapes else -1
        self._escapes = False
        for mark in _MARK.finditer(piece):
            place, char = mark.start(), mark.group()
            if self._in_string:
                if place == escaped:
                    continue
                if char == "\\":
                    escaped = place + 1
                    self._escapes = escaped == len(piece)
                elif char == '"':
                    self._in_string = False
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                self._is_over = self._depth == 0
