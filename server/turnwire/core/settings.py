"""Settings of the core: what the composition root hands down, already checked."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction, matches_glob
from turnwire.domain.conversation.sessions import Budget

DEFAULT_AGENT = "default"
"""The agent of every session that names none; always there."""


class PermissionRule(Struct, frozen=True):
    """What happens to calls of the tools that a pattern matches."""

    pattern: str
    """Such as "fs.write_*"; upper and lower case differ."""
    action: PermissionAction


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
    permissions: tuple[PermissionRule, ...] = ()
    """In the order of the configuration, after those of the server: the last rule that matches counts."""
    fallback_models: tuple[ModelRef, ...] | None = None
    """Asked in this order when the model's provider does not answer; None: the server's."""

    def may_use(self, tool: str) -> bool:
        """Tells whether the agent may use a tool of the server."""
        return self.tools is None or matches_glob(self.tools, tool)


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
    turn_budget: Budget = Budget()
    """What one turn may use; also the maximum that a message may ask for."""
    session_budget: Budget = Budget()
    """What all turns of a session may use together; also the maximum that a session may ask for."""


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """When older messages are summarised."""

    enabled: bool = True
    """For sessions that say nothing of their own."""
    threshold: float = 0.8
    """Share of the model's context window that a request may fill, with its answer, before it is compacted."""
    keep: float = 0.3
    """Share of the context window that the newest messages may keep."""
    model: ModelRef | None = None
    """Who writes summaries; None: the model of the turn."""


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
    permissions: tuple[PermissionRule, ...] = ()
    """For all agents. The last rule that matches counts; without one a call is allowed."""
    compaction: CompactionSettings = CompactionSettings()
    host_messages: bool = True
    """Whether errors, aborts and compactions leave a HOST message in the conversation."""

    def agent(self, name: str) -> Agent:
        """Returns an agent by name; "" is the default one, which is there even when it is not configured."""
        return self.agents.get(name or DEFAULT_AGENT, Agent())

    def fallbacks(self, agent: str) -> tuple[ModelRef, ...]:
        """Returns the models that are asked, in this order, when the provider of an agent's model does not answer."""
        own = self.agent(agent).fallback_models
        return self.fallback_models if own is None else own

    def permission(self, agent: str, tool: str) -> PermissionAction:
        """Returns what happens to an agent's calls of a tool."""
        action = PermissionAction.ALLOW
        for rule in (*self.permissions, *self.agent(agent).permissions):
            if matches_glob((rule.pattern,), tool):
                action = rule.action
        return action
