"""Settings of the core: what the composition root hands down, already checked."""

from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from turnwire.domain.messages import ModelRef

DEFAULT_AGENT = "default"
"""The agent of every session that names none; always there."""


class Agent(Struct, frozen=True, kw_only=True):
    """Named settings that a session or a message can choose."""

    system: str = ""
    """System prompt; "" for none."""
    model: ModelRef | None = None
    """None: the session's or the server's default."""
    description: str = ""
    color: str = ""
    """"#rrggbb" or ""."""
    tools: tuple[str, ...] | None = None
    """Patterns of the names of the server's tools that it may use, such as "fs.*"; None for all."""

    def may_use(self, tool: str) -> bool:
        """Tells whether the agent may use a tool of the server."""
        return self.tools is None or any(fnmatchcase(tool, pattern) for pattern in self.tools)


class Retries(Struct, frozen=True, kw_only=True):
    """How often and when a model call that failed before its first content is tried again."""

    max_retries: int = 3
    """Further attempts with the same model."""
    first_delay: timedelta = timedelta(milliseconds=500)
    """Doubles from attempt to attempt, less up to a half at random."""
    longest_delay: timedelta = timedelta(seconds=30)
    """A provider that asks for a longer wait counts as gone."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds that keep one caller from taking the server down."""

    max_steps: int = 50
    """Model calls of one turn; also the default."""
    max_running_turns: int = 256
    """Turns whose model is asked at once on the server; further ones wait. Those that wait for a tool or for the next
    attempt do not count."""
    max_queued_messages: int = 100
    """Messages that wait in one session; a further one is refused."""
    max_watchers: int = 10_000
    """Event streams open at once."""
    max_message_bytes: int = 32 * 2**20
    """Text, attachments and metadata of one message together."""
    max_answer_bytes: int = 16 * 2**20
    """Text, reasoning and arguments of one answer: far above what any model says, far below what memory holds."""
    max_file_bytes: int = 20 * 2**20
    """One attachment."""
    flush_interval: timedelta = timedelta(milliseconds=200)
    """How long streaming text may be unsaved: below the promised 250 ms by the time that a commit takes."""
    client_tool_timeout: timedelta = timedelta(minutes=10)
    """How long a call of a client tool waits for its result."""
    max_parallel_tool_calls: int = 8
    """Calls of the server's tools that run at once in one turn."""
    max_tool_output_bytes: int = 256 * 1024
    """Output of one call of a server's tool; the rest is cut off. A quarter of a million bytes fills most contexts."""
    max_repeated_calls: int = 3
    """Steps in a row with the very same calls and results, after which a turn ends."""


class CoreSettings(Struct, frozen=True, kw_only=True):
    """All settings of the core."""

    default_model: ModelRef
    agents: Mapping[str, Agent] = {}
    """By name. "default" is there even when it is not listed."""
    file_roots: tuple[Path, ...] = ()
    """Folders, besides a session's directory, from which a file part may name a path."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    fallback_models: tuple[ModelRef, ...] = ()
    """Asked in this order when the chosen model's provider does not answer."""
