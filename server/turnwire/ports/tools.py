"""Tools that the server runs: what the core needs from their sources."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from turnwire.domain.conversation.questions import LinkForm, QuestionReply, SchemaForm

MAX_OPEN_OF_CALL = 8
"""Maximum open questions of one call. More than one form at a time is rare, and hard to keep in view."""


class SourceState(StrEnum):
    """State of a source of tools."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    """It could not be reached; the server retries."""
    STOPPED = "stopped"


class ToolSource(Struct, frozen=True, kw_only=True):
    """A source of tools."""

    name: str
    """Unique; the names of its tools begin with it."""
    state: SourceState
    error: str = ""
    """The last error; "" when it is ready."""


def no_such_tool(name: str, sources: Iterable[ToolSource] = ()) -> str:
    """Returns why no tool has this name, for the model: its source may be starting, or out of reach.

    Args:
        name: Name of the tool.
        sources: The sources that may have it, in their present state.
    """
    prefix, dot, _ = name.partition(".")
    for source in sources:
        if dot and source.name == prefix and source.state in {SourceState.CONNECTING, SourceState.FAILED}:
            state = "still starting" if source.state is SourceState.CONNECTING else "not connected"
            return f"the MCP server {prefix!r} is {state}" + (f": {source.error}" if source.error else "")
    return f"there is no tool named {name!r}"


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
    """The result of a tool."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    """More facts for people, as a JSON object; "" when there are none."""
    files: tuple[ToolFile, ...] = ()


class NewQuestion(Struct, frozen=True, kw_only=True):
    """A question of a tool to a person, not validated yet."""

    prompt: str
    form: SchemaForm | LinkForm
    completed: asyncio.Event | None = None
    """Set when the source learns that the person has done what the link is for; None if the source cannot learn it."""


class QuestionRefused(Exception):
    """A question cannot be asked; the text says why, for the author of the tool."""


class ToolPause(Struct, frozen=True, kw_only=True):
    """A call that ended with questions, and resumes as a new call when they are closed."""

    questions: tuple[tuple[str, NewQuestion], ...]
    """At least one, each with the tool's own name for it."""
    state: str
    """The state with which the source resumes; opaque."""


class ToolResumption(Struct, frozen=True):
    """The state and answers with which a paused call resumes."""

    state: str
    """The state of the pause."""
    replies: tuple[tuple[str, QuestionReply], ...]
    """By the tool's own names of the questions."""


Ask = Callable[[NewQuestion], Awaitable[QuestionReply]]
"""Asks a person and returns the reply, which may take long. Cancelling withdraws the question.

Raises QuestionRefused, and StorageError.
"""


class ServerTools(Protocol):
    """All tools that the server runs. Used on the event loop only."""

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns the configured sources by name, whatever their state."""
        ...

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns the tools of all sources, ordered by name.

        A source that is out of reach keeps its tools: the list of tools that models get must not flicker.
        """
        ...

    async def wait_discovered(self) -> None:
        """Returns when each source has connected or failed once; the time for that is limited from the start on.

        Without this wait, a turn right after the start would miss tools that appear a moment later. Safe to cancel.
        """
        ...

    async def call(
        self,
        name: str,
        arguments_json: str,
        log: Callable[[str], None],
        ask: Ask,
        resumption: ToolResumption | None = None,
    ) -> ToolOutcome | ToolPause:
        """Runs a tool once, without retries.

        Never raises: every failure, a timeout included, is an outcome with is_error that a model can read.
        Cancelling the caller returns at once; the source is notified and its answer dropped.

        Args:
            name: Name of the tool.
            arguments_json: A JSON object.
            log: Takes a line that the tool logs while it runs; must not block.
            ask: Asks a person while the tool runs. That time does not count as the tool's.
            resumption: The state and answers of a paused call; None begins a call.
        """
        ...
