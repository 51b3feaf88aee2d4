"""Settings of the core: what the composition root hands down, already checked.

The configuration reads its sections as these types: their fields, defaults, ranges and docstrings are the reference of
the keys (docs/configuration.md). A name ends in the unit of its value.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from turnwire.domain.bounds import Count, Seconds, TokenLimit
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction, matches_glob
from turnwire.domain.conversation.sessions import DEFAULT_AGENT, Budget
from turnwire.domain.money import PicoUsd


class PermissionRule(Struct, frozen=True):
    """What happens to calls of the tools that a pattern matches."""

    pattern: str
    """Such as "fs.write_*"; upper and lower case differ."""
    action: PermissionAction


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named settings that a session or a message can choose. Sessions that name no agent have the agent "default"."""

    system: str = ""
    """System prompt; "" for none."""
    model: ModelRef | None = None
    """Left out: the session's model, else the server's default."""
    fallback_models: tuple[ModelRef, ...] | None = None
    """Asked in this order when the model's provider does not answer. Left out: those of `[defaults]`."""
    description: str = ""
    """To show to people."""
    color: Annotated[str, Meta(pattern="^(#[0-9a-fA-F]{6})?$")] = ""
    """To show to people: "#rrggbb" or ""."""
    tools: tuple[str, ...] | None = None
    """Patterns of the names of the server's tools that it may use, such as "fs.*". Left out: all; empty: none."""
    permissions: tuple[PermissionRule, ...] = ()
    """As `[permissions]`, and after those: the last rule that matches counts."""

    def may_use(self, tool: str) -> bool:
        """Tells whether the agent may use a tool of the server."""
        return self.tools is None or matches_glob(self.tools, tool)


class Retries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and when a model call that failed before its first content is tried again."""

    max_retries: Annotated[int, Meta(ge=0, le=20)] = 3
    """Further attempts with the same model."""
    first_delay_seconds: Seconds = 0.5
    """Doubles from attempt to attempt, less up to a half at random."""
    longest_delay_seconds: Seconds = 30.0
    """Longest pause. A provider that asks for a longer one counts as gone."""

    @property
    def first_delay(self) -> timedelta:
        """The first pause."""
        return timedelta(seconds=self.first_delay_seconds)

    @property
    def longest_delay(self) -> timedelta:
        """The longest pause; it also bounds the first."""
        return timedelta(seconds=self.longest_delay_seconds)


class Limits(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={
        "max_turn_cost_pico_usd": "max_turn_cost_usd",
        "max_session_cost_pico_usd": "max_session_cost_usd",
    },
):
    """Bounds that keep one caller from taking the server down."""

    max_steps: Count = 50
    """Model calls of one turn. A message may ask for less."""
    max_running_turns: Count = 256
    """Turns whose model is asked at once, on the whole server; further ones wait. Turns that wait for a tool or for the
    next attempt do not count."""
    max_queued_messages: Annotated[int, Meta(ge=0)] = 100
    """Messages that wait in one session; a further one is refused."""
    max_watchers: Count = 10_000
    """Event streams open at once."""
    max_message_bytes: Count = 32 * 2**20
    """Text, attachments and metadata of one message together."""
    max_answer_bytes: Count = 16 * 2**20
    """Text, reasoning and arguments of one answer: far above what any model says, far below what memory holds."""
    flush_interval_seconds: Annotated[float, Meta(gt=0, le=0.2)] = 0.2
    """How long streaming text may be unsaved: below the promised 250 ms by the time that a commit takes."""
    client_tool_timeout_seconds: Seconds = 600.0
    """How long the calls of client tools in one step wait for their results."""
    max_parallel_tool_calls: Count = 8
    """Calls of the server's tools that run at once in one turn."""
    max_tool_output_bytes: Count = 256 * 1024
    """Output of one call of a server's tool; the rest is cut off. A quarter of a million bytes fills most contexts."""
    max_repeated_calls: Annotated[int, Meta(ge=2)] = 3
    """Steps in a row with the very same calls and results, after which a turn ends."""
    max_turn_tokens: TokenLimit = 0
    """Prompts and answers of one turn; 0 sets no limit. A message may ask for less."""
    max_turn_cost_pico_usd: PicoUsd = PicoUsd(0)
    """Money for one turn; 0 sets no limit. Steps of unknown price count as no money. A message may ask for less."""
    max_session_tokens: TokenLimit = 0
    """Prompts and answers of all turns of a session; 0 sets no limit. A session may ask for less."""
    max_session_cost_pico_usd: PicoUsd = PicoUsd(0)
    """Money for all turns of a session; 0 sets no limit. A session may ask for less."""

    @property
    def flush_interval(self) -> timedelta:
        """How long streaming text may be unsaved."""
        return timedelta(seconds=self.flush_interval_seconds)

    @property
    def client_tool_timeout(self) -> timedelta:
        """How long the calls of client tools in one step wait."""
        return timedelta(seconds=self.client_tool_timeout_seconds)

    @property
    def turn_budget(self) -> Budget:
        """What one turn may use; also the maximum that a message may ask for."""
        return _budget(self.max_turn_tokens, self.max_turn_cost_pico_usd)

    @property
    def session_budget(self) -> Budget:
        """What all turns of a session may use together; also the maximum that a session may ask for."""
        return _budget(self.max_session_tokens, self.max_session_cost_pico_usd)


def _budget(max_tokens: int, max_cost: PicoUsd) -> Budget:
    return Budget(max_tokens=max_tokens or None, max_cost_pico_usd=int(max_cost) or None)


class FileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files on the server's disk a message may name, and how large a file may be."""

    roots: tuple[Path, ...] = ()
    """Folders from which messages may name files, besides the session's directory."""
    max_bytes: Count = 20 * 2**20
    """One file: an attachment, or a file of a tool's result."""


class CompactionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When older messages are summarised, and by whom."""

    enabled: bool = True
    """For sessions that do not set it themselves."""
    threshold: Annotated[float, Meta(ge=0.1, le=0.99)] = 0.8
    """Share of the model's context window that a request may fill, with its answer, before it is compacted."""
    keep: Annotated[float, Meta(ge=0.05, le=0.9)] = 0.3
    """Share of the context window that the newest messages may keep; less than `threshold`."""
    model: ModelRef | None = None
    """Writes the summaries. Left out or "": the model of the turn."""


class CoreSettings(Struct, frozen=True, kw_only=True):
    """All settings of the core."""

    default_model: ModelRef
    agents: Mapping[str, Agent] = {}
    """By name. "default" is there even when it is not listed."""
    files: FileSettings = FileSettings()
    """The roots are absolute."""
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
