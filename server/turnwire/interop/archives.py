"""Formats of other systems by name, for imports and exports.

`READERS` and `WRITERS` make an adapter for each archive. Its module is imported when it is used, not at the start of a
server. The server's own format is not among them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.ports.clock import Clock
from turnwire.ports.moving.archives import ArchiveReader, ArchiveWriter


class _Reader:
    """Reads a format of another system. Implements `ports.moving.archives.ArchiveReader`."""

    keeps_ids = False

    def __init__(self, module: str, name: str, clock: Clock, bounds: ArchiveLimits) -> None:
        """Takes the module and the class of the reader, and their arguments."""
        self._module = module
        self._name = name
        self._clock = clock
        self._bounds = bounds

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records of an archive."""
        make: Any = getattr(import_module(f"turnwire.interop.{self._module}"), self._name)
        reader: ArchiveReader = make(self._clock, self._bounds)
        return reader.read(source, options)


def _writer(module: str, name: str) -> ArchiveWriter:
    made: ArchiveWriter = getattr(import_module(f"turnwire.interop.{module}"), name)()
    return made


READERS: Mapping[str, Callable[[Clock, ArchiveLimits], ArchiveReader]] = {
    "chatgpt": partial(_Reader, "chatgpt.reading", "ChatGPTReader"),
    "claude": partial(_Reader, "claude.reading", "ClaudeReader"),
    "openai": partial(_Reader, "openai.reading", "OpenAIReader"),
    "opencode": partial(_Reader, "opencode.reading", "OpenCodeReader"),
}
"""Makers of readers by the name of the format."""

WRITERS: Mapping[str, Callable[[], ArchiveWriter]] = {
    "openai": partial(_writer, "openai.writing", "OpenAIWriter"),
    "opencode": partial(_writer, "opencode.writing", "OpenCodeWriter"),
}
"""Makers of writers by the name of the format."""
