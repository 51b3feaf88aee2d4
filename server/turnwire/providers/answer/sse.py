"""Server-sent events, decoded as the bytes arrive.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream with one difference: an
event at the very end without its blank line is returned by `finish`, because several servers omit that line.
"""

_LINE_BYTES = 256
"""What each further line of an event's data counts beside its content: until they are joined it is an object."""

_SMALL_BYTES = 1024
"""Of a piece of a line to which the next one is added."""

_MAX_NAME_BYTES = 256
"""Of an event's name."""

_BOM = b"\xef\xbb\xbf"


class SseEventTooLarge(ValueError):
    """An event is larger than the decoder may hold."""


class SseDecoder:
    """Turns chunks of bytes, cut anywhere, into events. Not to be used after `SseEventTooLarge`."""

    def __init__(self, max_event_bytes: int) -> None:
        """Args:
        max_event_bytes: Largest size of one event's data and of one line, inclusive. Each further line of data counts
                `_LINE_BYTES` more.
        """
        self.max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []
        """The unfinished line, in pieces: joined once, so that a long line costs no copy per chunk."""
        self.pending_bytes = 0
        """Of the event that is not complete."""
        self._after_cr = False
        self._at_start = True
        self._event = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """Takes the next bytes.

        Returns: the events that are now complete, in order, as (event name, data); the name is b"" when there is none.

        Raises:
            SseEventTooLarge: an event exceeds the bound.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line, newline, others = chunk.partition(b"\n")
        self._bound(len(line))
        if not newline:
            self._add_piece(chunk)
            return []
        if self._pieces:
            self._add_piece(line)
            line = b"".join(self._pieces)
        *lines, rest = others.split(b"\n")
        self._pieces = [rest] if rest else []
        events = self._take_lines([line, *lines])
        self.pending_bytes = self._data_bytes
        self._bound(len(rest))
        return events

    def finish(self) -> list[tuple[bytes, bytes]]:
        """Ends the input. Returns the event that lacked its blank line, if any."""
        lines = [b"".join(self._pieces), b""]
        self._pieces = []
        return self._take_lines(lines)

    def _add_piece(self, piece: bytes) -> None:
        """Keeps a piece of a line; small ones as one, because each is an object."""
        if self._pieces and len(self._pieces[-1]) < _SMALL_BYTES:
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece)

    def _bound(self, added_bytes: int) -> None:
        self.pending_bytes += added_bytes
        if self.pending_bytes > self.max_event_bytes:
            raise SseEventTooLarge(f"an event is larger than {self.max_event_bytes} bytes")

    def _take_lines(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        events = []
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append((self._event, data))
                    self._data = []
                    self._data_bytes = 0
                self._event = b""
            elif line.startswith(b"data:"):
                self._add(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                self._event = line[6:_MAX_NAME_BYTES].removeprefix(b" ")
            elif line == b"data":
                self._add(b"")
        return events

    def _add(self, data: bytes) -> None:
        self._data_bytes += len(data) + (_LINE_BYTES if self._data else 0)
        self._data.append(data)
