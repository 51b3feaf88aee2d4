"""How much JSON a foreign message holds, counted while its bytes arrive and before anything is made of them.

A parser makes an object of each value, so a message that fits its limit of bytes could still take thirty times as
much memory, and hold the event loop for seconds.
"""

MAX_MESSAGE_BYTES = 12 * 2**20
"""Of one message: the files that a result may have, in base64, and some room. Reading one takes up to 25 milliseconds,
in which nothing else runs."""

MAX_VALUES = 100_000
"""Values in one message: lists of hundreds of tools have some ten thousand."""

MAX_ESCAPES = 500_000
"""Escaped characters in one message, each of which costs as much as many others. 12 MB of text have a third of that."""


class TooLargeError(ValueError):
    """A message is larger than it may be; the text says in which way."""


class JsonSize:
    """Counts the bytes and values of one message. What is in strings is one value.

    `_escape` is a backslash at the end of the bytes so far, whose next byte has yet to come.
    """

    def __init__(self) -> None:
        """Counts from nothing."""
        self.held_bytes = 0
        """Of the message so far."""
        self._values = 0
        self._escapes = 0
        self._is_in_string = False
        self._escape = b""

    def add(self, piece: bytes) -> None:
        """Counts more bytes. Raises TooLargeError when these are too many, or too many values."""
        self.held_bytes += len(piece)
        if self.held_bytes > MAX_MESSAGE_BYTES:
            raise TooLargeError(f"it sent a message larger than {MAX_MESSAGE_BYTES} bytes")
        self._escapes += piece.count(b"\\")
        if self._escapes > MAX_ESCAPES:
            raise TooLargeError(f"it sent a message of more than {MAX_ESCAPES} escaped characters")
        text = self._escape + piece
        backslashes = len(text) - len(text.rstrip(b"\\"))
        self._escape = text[-1:] if backslashes % 2 else b""
        text = text[: len(text) - len(self._escape)].replace(b"\\\\", b"").replace(b'\\"', b"")
        segments = text.split(b'"')
        outside = b"".join(segments[self._is_in_string :: 2])
        self._is_in_string ^= len(segments) % 2 == 0
        self._values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if self._values > MAX_VALUES:
            raise TooLargeError(f"it sent a message of more than {MAX_VALUES} values")


class EventSize:
    """Counts the data of each event of an event stream. Comments and other fields have no JSON.

    `_head` is the begin of a line whose field is not known yet, `_return` a carriage return at the end of the bytes so
    far: a line feed behind it ends no further line.
    """

    def __init__(self) -> None:
        """Counts from nothing."""
        self._size = JsonSize()
        self.held_bytes = 0
        """Of the event so far, with all its fields."""
        self._head: bytes | None = b""
        self._is_data = False
        self._return = b""

    def add(self, piece: bytes) -> None:
        """Counts more bytes. Raises TooLargeError when the data of one event is too much."""
        self.held_bytes += len(piece)
        text = self._return + piece
        self._return = text[-1:] if text.endswith(b"\r") else b""
        text = text[: len(text) - len(self._return)]
        first, *further = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._go_on(first)
        for part in further:
            if self._head == b"":  # the line was empty, which ends the event
                self._size, self.held_bytes = JsonSize(), 0
            self._head, self._is_data = b"", False
            self._go_on(part)

    def _go_on(self, part: bytes) -> None:
        """Takes a part of a line."""
        if self._head is not None:
            part = self._head + part
            self._head = part if len(part) < len(b"data:") else None
            self._is_data = part.startswith(b"data:")
            if self._head is not None:
                return
        if self._is_data:
            self._size.add(part)
