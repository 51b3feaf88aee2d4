"""Formats of other systems by name, as an import reads and an export writes them.

`READERS` and `WRITERS` make an adapter for each archive. The server's own format is not among them.
"""

from collections.abc import Callable, Mapping

from turnwire.interop.archive.bounds import Bounds
from turnwire.interop.chatgpt.reading import ChatGPTReader
from turnwire.interop.claude.reading import ClaudeReader
from turnwire.interop.ikigai.archive import RowsReader
from turnwire.interop.openai.reading import OpenAIReader
from turnwire.interop.openai.writing import OpenAIWriter
from turnwire.interop.opencode.reading import OpenCodeReader
from turnwire.interop.opencode.writing import OpenCodeWriter
from turnwire.ports.clock import Clock
from turnwire.ports.moving.archives import ArchiveReader, ArchiveWriter

READERS: Mapping[str, Callable[[Clock, Bounds], ArchiveReader]] = {
    "chatgpt": ChatGPTReader,
    "claude": ClaudeReader,
    "ikigai": lambda _, bounds: RowsReader(bounds),
    "openai": OpenAIReader,
    "opencode": OpenCodeReader,
}
"""Makers of readers by the name of the format."""

WRITERS: Mapping[str, Callable[[], ArchiveWriter]] = {
    "openai": OpenAIWriter,
    "opencode": OpenCodeWriter,
}
"""Makers of writers by the name of the format."""
