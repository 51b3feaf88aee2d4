"""Decodes server-sent events as their bytes arrive.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream with one difference:
`finish` returns a last event without its blank line, because several servers omit that line.
"""

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Turns chunks of bytes, cut anywhere, into events."""

    def __init__(self) -> None:
        """Starts before the first byte."""
        self._pieces: list[bytes] = []
        """The unfinished line, in pieces, which are joined once, so that a long line is not copied for each chunk."""
        self._after_cr = False
        self._at_start = True
        self._event = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """Takes the next bytes.

        Returns: the events that are now complete, in order, as (event name, data); the name is b"" when there is none.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line, newline, others = chunk.partition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        if self._pieces:
            self._pieces.append(line)
            line = b"".join(self._pieces)
        *lines, rest = others.split(b"\n")
        self._pieces = [rest] if rest else []
        return self._take_lines([line, *lines])

    def finish(self) -> list[tuple[bytes, bytes]]:
        """Ends the input. Returns the last event if it lacked its blank line."""
        lines = [b"".join(self._pieces), b""]
        self._pieces = []
        return self._take_lines(lines)

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
                self._event = b""
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                self._event = line[6:].removeprefix(b" ")
            elif line == b"data":
                self._data.append(b"")
        return events
