"""Tools that the server runs: what the core needs of their sources."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class SourceState(StrEnum):
    """How far a source of tools is."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    """It could not be reached and is tried again."""
    STOPPED = "stopped"


class ToolSource(Struct, frozen=True, kw_only=True):
    """Where tools come from."""

    name: str
    """Unique; the beginning of its tools' names."""
    state: SourceState
    error: str = ""
    """What went wrong last; "" when it is ready."""


class ServerTool(Struct, frozen=True, kw_only=True):
    """One tool that the server runs."""

    name: str
    """"SOURCE.TOOL"; unique."""
    description: str
    input_schema_json: str
    source: str
    """Name of its source."""


class ToolFile(Struct, frozen=True, kw_only=True):
    """A file that a tool made."""

    content: bytes
    mime: str
    filename: str = ""


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    """Further facts as a JSON object for people; "" for none."""
    files: tuple[ToolFile, ...] = ()


class ServerTools(Protocol):
    """All tools that the server runs. Used on the event loop only."""

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns the configured sources by name, whatever their state."""
        ...

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns the tools of all sources by name, in an order that does not change by itself.

        A source that is lost for a while keeps its tools: what a model is offered shall not flicker.
        """
        ...

    async def discovered(self) -> None:
        """Returns when each source was reached once or failed to be, within a few seconds of the start at most.

        A turn that begins right after the start would otherwise not be offered tools that are there a moment later.
        Safe to cancel.
        """
        ...

    async def call(self, name: str, arguments_json: str, log: Callable[[str], None]) -> ToolOutcome:
        """Runs a tool once; never a second time by itself.

        Never raises: whatever goes wrong, a time limit included, is an outcome with is_error that a model can read.
        Cancelling the caller returns at once; the source is told, and its answer is dropped.

        Args:
            name: Name of the tool.
            arguments_json: A JSON object.
            log: Takes a line that the tool says while it runs; must not wait.
        """
        ...


class NoServerTools:
    """A server without tools of its own."""

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns nothing."""
        return ()

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns nothing."""
        return ()

    async def discovered(self) -> None:
        """Returns at once."""

    async def call(self, name: str, arguments_json: str, log: Callable[[str], None]) -> ToolOutcome:
        """Answers that there is no such tool."""
        return ToolOutcome(output=f"there is no tool named {name!r}", is_error=True)
