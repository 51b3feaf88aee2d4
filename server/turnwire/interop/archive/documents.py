"""Reads JSON of any size, with one conversation at a time in memory.

ijson makes events from the text, in C where its C backend exists. The values are made here, because only here their
number and depth can be limited while they grow.
"""

import io
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from math import isfinite
from typing import Any, BinaryIO

import ijson

from turnwire.domain.errors import ArchiveInvalid
from turnwire.domain.text import join_surrogates, one_line
from turnwire.interop.archive.bounds import ArchiveLimits

CHUNK_BYTES = 65_536
"""Bytes read at once: the events of a chunk are in memory together, at most one for each byte."""
LONG_CHUNK_BYTES = 2**20
"""Bytes read at once inside a long text. Fewer chunks are better, because the C backend reads its beginning again with
each."""
_BOM = b"\xef\xbb\xbf"
_NOT_JSON = (ijson.JSONError, ValueError)
"""The errors of the backends for text that is not JSON, and for numbers and bytes that Python cannot read."""
_MOST = 2**63 - 1
"""Largest whole number; the C backend rejects larger ones. With `use_float=False` it accepts any number of digits and
crashes the process where Python rejects them (ijson 3.6.0): the event then has no value."""
_HALF = re.compile(rb"\\u[dD][c-fC-F]")
_ESCAPE = re.compile(rb"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]..|u[dD][c-fC-F]..|.)")
_LONGEST_ESCAPE = 12


def documents(source: BinaryIO, bounds: ArchiveLimits, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each item of an array with its position such as "[3]", or the one object of a document with `place`.

    Numbers are int, or float where they have a fraction or an exponent. The last value of a repeated key applies.

    Raises:
        ArchiveInvalid: the text is not JSON, is truncated, or is neither an array nor an object; or an item is over a
            limit.
    """
    size = 0
    with closing(_Values(bounds, place)) as values:
        for chunk in _chunks(source, values):
            size += len(chunk)
            if size > bounds.conversation_bytes:
                raise ArchiveInvalid.at(f"is longer than {bounds.conversation_bytes} bytes", place=values.place)
            for found in values.of(chunk):
                size = 0
                yield found
        values.end()


def lines(source: BinaryIO, bounds: ArchiveLimits) -> Iterator[tuple[int, Any]]:
    """Yields the value of each line of JSON Lines with the number of the line, from 1. Skips empty lines.

    Raises:
        ArchiveInvalid: a line is not a JSON object, or is over a limit; names the line.
    """
    number = 0
    while line := source.readline(bounds.conversation_bytes + 1):
        number += 1
        if len(line) > bounds.conversation_bytes:
            raise ArchiveInvalid.at(f"is longer than {bounds.conversation_bytes} bytes", line=number)
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.strip():
            yield number, _object_in(text, bounds, number)


def anything(source: BinaryIO, bounds: ArchiveLimits) -> Iterator[tuple[int, str, Any]]:
    """Yields line (0 for none), position and value of each value of JSON Lines or of a document, whichever it is.

    JSON Lines are texts whose first line is an object: a document begins with an array, or its object continues on the
    next line.

    Raises:
        ArchiveInvalid: as `lines` and `documents`.
    """
    if _has_lines(source, bounds):
        yield from ((line, "", value) for line, value in lines(source, bounds))
    else:
        yield from ((0, place, value) for place, value in documents(source, bounds))


def _has_lines(source: BinaryIO, bounds: ArchiveLimits) -> bool:
    """Returns whether an object fills the first line that is not empty. Leaves the source at its beginning."""
    start = source.tell()
    beginning = source.read(4096).removeprefix(_BOM).lstrip()
    source.seek(start)
    if not beginning.startswith(b"{"):
        return False
    first = b""
    while not first.strip(_BOM + b" \t\r\n"):
        first = source.readline(bounds.conversation_bytes)
    source.seek(start)
    return first.rstrip().endswith(b"}")


def _object_in(line: bytes, bounds: ArchiveLimits, number: int) -> Any:
    with closing(_Values(bounds, "", number)) as values:
        found = [value for chunk in _chunks(io.BytesIO(line), values) for value in values.of(chunk)]
        values.end()
    if values.is_array:
        raise ArchiveInvalid.at("must be an object, not an array", line=number)
    [(_, value)] = found
    return value


def _chunks(source: BinaryIO, values: "_Values") -> Iterator[bytes]:
    if first := source.read(CHUNK_BYTES).removeprefix(_BOM):  # a parser that gets b"" takes it for the end
        yield first
    while chunk := source.read(values.wanted_bytes):
        yield chunk


class _Values:
    """Makes values from the chunks of one text."""

    def __init__(self, bounds: ArchiveLimits, place: str, line: int = 0) -> None:
        self.is_array = False
        self.wanted_bytes = CHUNK_BYTES
        self._bounds = bounds
        self._root = place
        self._line = line
        self._events: list[tuple[str, Any]] = ijson.sendable_list()
        self._parser = ijson.basic_parse_coro(self._events, use_float=True)
        self._begun = False
        self._index = 0
        self._open: list[Any] = []
        self._keys: list[str] = []
        self._count = 0

    @property
    def place(self) -> str:
        """The path of the current value."""
        return f"{self._root}[{self._index}]" if self.is_array else self._root

    def of(self, chunk: bytes) -> Iterator[tuple[str, Any]]:
        """Yields the values that end in a chunk."""
        failed: BaseException | None = None
        try:
            self._parser.send(_whole_pairs(chunk))
        except _NOT_JSON as error:
            failed = error  # the events before the error are read, so that the position is right
        self.wanted_bytes = CHUNK_BYTES if self._events else min(2 * self.wanted_bytes, LONG_CHUNK_BYTES)
        events = self._events[:]
        self._events.clear()
        for event, value in events:
            if not self._begun:
                self._begin(event)
                if self.is_array:
                    continue
            elif not self._open and event == "end_array":
                break
            done, whole = self._add(event, value)
            if done:
                yield self.place, whole
                self._index += 1
                self._count = 0
        if failed is not None:
            raise self._refused(f"is not JSON: {_cause(failed)}") from None

    def end(self) -> None:
        """Raises ArchiveInvalid when the text ends inside a value."""
        try:
            self._parser.close()
        except _NOT_JSON:
            ended = "ends inside JSON: the archive is cut" if self._begun else "is empty, or cut"
            raise self._refused(ended) from None
        if not self._begun:
            raise self._refused("must be an array or an object")

    def close(self) -> None:
        """Ends the parser. In Python it is a generator, which would otherwise report its end when it is collected."""
        with suppress(*_NOT_JSON):
            self._parser.close()

    def _begin(self, event: str) -> None:
        if event not in ("start_array", "start_map"):
            raise self._refused("must be an array or an object")
        self._begun, self.is_array = True, event == "start_array"

    def _add(self, event: str, value: Any) -> tuple[bool, Any]:
        """Returns whether a top-level value is now complete, and that value."""
        self._count += 1
        if self._count > self._bounds.values:
            raise self._refused(f"has more than {self._bounds.values} values")
        if event == "map_key":
            self._keys[-1] = _text(value)
            return False, None
        if event in ("end_map", "end_array"):
            self._keys.pop()
            whole = self._open.pop()
            return not self._open, whole
        if event == "start_map":
            return self._nest({})
        if event == "start_array":
            return self._nest([])
        if event == "number":
            value = self._number(value)
        elif event == "string":
            value = _text(value)
        return self._put(value), value

    def _nest(self, container: Any) -> tuple[bool, Any]:
        if len(self._open) >= self._bounds.depth:
            raise self._refused(f"is deeper than {self._bounds.depth} levels")
        self._put(container)
        self._open.append(container)
        self._keys.append("")
        return False, None

    def _put(self, value: Any) -> bool:
        if not self._open:
            return True
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            parent[self._keys[-1]] = value
        return False

    def _number(self, value: float) -> float:
        if not isfinite(value) or (isinstance(value, int) and abs(value) > _MOST):
            raise self._refused("has a number that is too large")
        return value

    def _refused(self, description: str) -> ArchiveInvalid:
        return ArchiveInvalid.at(description, place=self.place, line=self._line)


def _whole_pairs(chunk: bytes) -> bytes:
    """Returns JSON text with U+FFFD for the second halves of surrogate pairs that have no first half.

    JavaScript writes them where it cut a text. The C backend reads a first half alone as "?". From a second half alone
    it makes bytes that Python rejects. One at the beginning of a chunk stays: its first half may be in the last chunk.
    """
    if _HALF.search(chunk) is None:
        return chunk

    def whole(found: re.Match[bytes]) -> bytes:
        text = found[0]
        is_half = len(text) == 6 and found.start() >= _LONGEST_ESCAPE
        return b"\\ufffd" if is_half else text

    return _ESCAPE.sub(whole, chunk)


def _text(value: str) -> str:
    return value if value.isascii() else join_surrogates(value)


def _cause(error: BaseException) -> str:
    """Returns the first line of a backend's message, without the quoted text around the position, which may be
    anything.
    """
    if not isinstance(error, ijson.JSONError):
        return "a number or text that cannot be read"
    first = str(error.args[0] if error.args else error)
    return one_line(first.removeprefix("b'").replace("\\n", "\n").partition("\n")[0].strip(), 100)
