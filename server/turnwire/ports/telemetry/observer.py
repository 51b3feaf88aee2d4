"""Reports of the server's work, for logs and metrics only.

Each report is one call at the end of something: of an RPC, a turn, a step, a model call, a tool call, a transaction. No
report is made for a single delta or event. Reports hold no prompts, answers, tool output or keys.
"""

from datetime import timedelta

from msgspec import Struct

from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderError

CLIENT_TOOLS = "client"
"""The source of the tools that clients run; the name of an MCP server is the source of its tools."""


class ModelCallEnd(Struct, frozen=True, kw_only=True):
    """An attempt to get a model's answer ended. An attempt that was cancelled is not reported."""

    turn: Turn
    """The turn that needs the answer, or the summary."""
    model: ModelRef
    """The called model."""
    attempt: int = 1
    """From 1 for each model."""
    failure: ProviderError | None = None
    """None when the provider finished its answer."""
    retry_delay: timedelta | None = None
    """Delay before the server calls the same model again; None if it does not."""
    fallback: ModelRef | None = None
    """The model that is called next, at once; None if there is none."""
    seconds: float
    """From the request to the end of the answer."""
    first_output_seconds: float | None = None
    """From the request to the first text, reasoning or tool call; None when none came."""


class ToolCallEnd(Struct, frozen=True, kw_only=True):
    """A tool gave its result or ran out of time. Calls that never ran are not reported."""

    source: str
    """The name of an MCP server, or `CLIENT_TOOLS`."""
    is_error: bool
    seconds: float
    """Time that the tool ran; for a tool of the client, the time since the client could answer the call."""


class BatchEnd(Struct, frozen=True, kw_only=True):
    """One transaction ended."""

    commits: int
    """Number of units of work in it."""
    failed: int
    """Number of them that were not stored."""
    seconds: float
    """Duration of the transaction."""
    longest_seconds: float
    """Time from the call of the oldest of its commits until that was stored."""


class Observer:
    """Receives the reports and ignores them; the base class of observers.

    Every method returns at once, never raises, and is called on the event loop only.
    """

    def call_started(self, method: str) -> None:
        """An RPC began. Takes the method's full name."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """An RPC that began has ended, with the name of a status code such as "NOT_FOUND"."""

    def turn_started(self, turn: Turn) -> None:
        """A turn runs: a new one, or one of an earlier process that resumes."""

    def turn_ended(self, turn: Turn, first_output_seconds: float | None) -> None:
        """A turn's end is stored.

        Args:
            turn: The ended turn. One that was dropped while it waited never started.
            first_output_seconds: From its start to the first content of its first answer; None when this process saw
                no content of the turn, or did not see its start.
        """

    def answer_ended(self, turn: Turn, message: Message, *, is_summary: bool) -> None:
        """A model's answer ended in any way: the answer of a step, or a summary of older messages or a title.

        The message has its usage and cost as far as they are known. It is STREAMING when its turn was stopped.
        """

    def model_call_ended(self, call: ModelCallEnd) -> None:
        """An attempt to get an answer of a model succeeded or failed."""

    def tool_call_ended(self, call: ToolCallEnd) -> None:
        """A tool gave its result."""

    def batch_ended(self, batch: BatchEnd) -> None:
        """A transaction was stored, or failed."""

    def watcher_fell_behind(self) -> None:
        """A watcher read so slowly that it has to read the store."""
