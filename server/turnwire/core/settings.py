"""Settings of the core, already checked when the composition root passes them in.

The configuration reads its sections as these types. Their fields, defaults, ranges and docstrings become the reference
of the keys (docs/reference/configuration.md). A name ends in the unit of its value.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from turnwire.domain.bounds import Count, QuotaLimit, Seconds, TokenLimit
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.permissions import PermissionAction, matches_glob
from turnwire.domain.conversation.sessions import DEFAULT_AGENT
from turnwire.domain.limits import Limits
from turnwire.domain.money import PicoUsd
from turnwire.ports.pages import Page


class PermissionRule(Struct, frozen=True):
    """The action for calls of the tools that a pattern matches."""

    pattern: str
    """For example "fs.write_*"; case-sensitive."""
    action: PermissionAction


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named settings that a session or a message can choose; otherwise the agent "default" counts."""

    system: str = ""
    """System prompt; "" for none."""
    model: ModelRef | None = None
    """If omitted: the session's model, else the server's default."""
    fallback_models: tuple[ModelRef, ...] | None = None
    """As `defaults.fallback_models`, which count if this is omitted."""
    description: str = ""
    """For user interfaces."""
    color: Annotated[str, Meta(pattern="^(#[0-9a-fA-F]{6})?$")] = ""
    """For user interfaces: "#rrggbb" or ""."""
    tools: tuple[str, ...] | None = None
    """Patterns of server tools that it may use, such as "fs.*". Omitted: all; empty: none."""
    sender_names: bool = True
    """Whether models are told [who speaks](../guides/models.md#who-speaks)."""
    permissions: tuple[PermissionRule, ...] = ()
    """Rules that come after those of `[permissions]`."""

    def may_use(self, tool: str) -> bool:
        """Returns whether the agent may use a tool of the server."""
        return self.tools is None or matches_glob(self.tools, tool)


class Retries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries of a model call that failed before its first content."""

    max_retries: Annotated[int, Meta(ge=0, le=20)] = 3
    """Further attempts with the same model."""
    first_delay_seconds: Seconds = 0.5
    """First pause; it doubles with each retry, less up to half at random."""
    longest_delay_seconds: Seconds = 30.0
    """Longest pause; a provider that asks for more counts as unavailable."""

    @property
    def first_delay(self) -> timedelta:
        """The first pause."""
        return timedelta(seconds=self.first_delay_seconds)

    @property
    def longest_delay(self) -> timedelta:
        """The longest pause; it also bounds the first."""
        return timedelta(seconds=self.longest_delay_seconds)


class FileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files on the server's disk that messages may name, and sizes of files."""

    roots: tuple[Path, ...] = ()
    """Folders of [files that messages may name](../operate/security.md#files-of-the-server), and of sessions'
    directories."""
    max_bytes: Count = 20 * 2**20
    """Largest file, attached or in a tool's result, else `MESSAGE_TOO_LARGE`."""
    max_upload_bytes: Annotated[int, Meta(ge=1, le=2**53 - 1)] = 2 * 2**30
    """Largest upload, else `MESSAGE_TOO_LARGE`."""
    max_uploads: Count = 20
    """Uploads of a tenant, complete ones included; else `CONCURRENCY_LIMIT`."""
    upload_expiry_seconds: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 86_400.0
    """Time without a write after which an upload goes."""

    @property
    def upload_expiry(self) -> timedelta:
        """Time without a write after which an upload is removed."""
        return timedelta(seconds=self.upload_expiry_seconds)


class QuotaLimits(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={
        "max_cost_pico_usd_per_day": "max_cost_usd_per_day",
        "max_cost_pico_usd_per_month": "max_cost_usd_per_month",
    },
):
    """[Quotas](../concepts/tenants-and-quotas.md#quotas) of each tenant; 0 and a key that is left out set none.

    A key in `[tenants.NAME.quotas]` counts for that tenant instead.
    """

    max_sessions: QuotaLimit | None = None
    """Stored sessions."""
    max_running_turns: QuotaLimit | None = None
    """Turns that run or wait for a tool or a person."""
    max_waiting_messages: QuotaLimit | None = None
    """Messages that wait, in all sessions."""
    max_watchers: QuotaLimit | None = None
    """Open event streams."""
    max_requests_per_second: QuotaLimit | None = None
    """Requests a second, on average. A stream is one."""
    max_request_burst: QuotaLimit | None = None
    """Requests at once after a pause; 0 or omitted: those of a second."""
    max_stored_bytes: QuotaLimit | None = None
    """All that is stored; equal files once. Answers and results of tools may go over it."""
    max_tokens_per_day: TokenLimit | None = None
    """Prompts and answers. A step that has begun may go over."""
    max_tokens_per_month: TokenLimit | None = None
    """The same for a month."""
    max_cost_pico_usd_per_day: PicoUsd | None = None
    """Money for models."""
    max_cost_pico_usd_per_month: PicoUsd | None = None
    """The same for a month."""

    def over(self, defaults: "QuotaLimits") -> "QuotaLimits":
        """Returns these limits, with the defaults for those that are left out."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(defaults, **given)


class TenantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one tenant. A server that does not identify callers has one, `default`."""

    roots: tuple[Path, ...] | None = None
    """In place of `files.roots`; empty: no file of the server."""
    quotas: QuotaLimits = QuotaLimits()
    """Limits in place of those in `[quotas]`."""


class CompactionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and by which model older messages are summarised."""

    enabled: bool = True
    """For sessions without a setting of their own."""
    threshold: Annotated[float, Meta(ge=0.1, le=0.99)] = 0.8
    """Share of the context window that request and answer may fill before that."""
    keep: Annotated[float, Meta(ge=0.05, le=0.9)] = 0.3
    """Share that the newest messages may keep; less than `threshold`."""
    model: ModelRef | None = None
    """Writer of the summaries; if omitted or "", the turn's model."""


class TitleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Titles that a model gives to sessions without one, when an answer has ended."""

    enabled: bool = False
    """Whether such calls are made; they count as others do."""
    model: ModelRef | None = None
    """Writer of all titles; if omitted or "", one of `models`, else the one that answered, unless `offline`."""
    models: tuple[ModelRef, ...] = ()
    """Cheap models, one for each provider whose sessions it titles."""
    max_seconds: Seconds = 20.0
    """Time for the call."""
    max_input_characters: Annotated[int, Meta(ge=2, le=100_000)] = 4000
    """Characters of question and answer that the model gets, half of each."""
    max_output_tokens: Annotated[int, Meta(ge=16, le=100_000)] = 512
    """Tokens that the model may write; reasoning needs some hundred."""
    max_title_characters: Annotated[int, Meta(ge=8, le=1024)] = 60
    """Longest title; a longer one is cut at a word."""


class CoreSettings(Struct, frozen=True, kw_only=True):
    """All settings of the core."""

    default_model: ModelRef
    agents: Mapping[str, Agent] = {}
    """By name. The agent "default" exists even if it is not listed."""
    files: FileSettings = FileSettings()
    """The roots are absolute."""
    tenants: Mapping[str, TenantSettings] = {}
    """By name; a tenant that is not listed has the defaults. The roots are absolute, the quotas those that count."""
    quotas: QuotaLimits = QuotaLimits()
    """Quotas of each tenant that is not listed in `tenants`."""
    limits: Limits = Limits()
    retries: Retries = Retries()
    fallback_models: tuple[ModelRef, ...] = ()
    """Tried in this order when the chosen model's provider does not answer."""
    permissions: tuple[PermissionRule, ...] = ()
    """For all agents. The last matching rule applies; a call that no rule matches is allowed."""
    compaction: CompactionSettings = CompactionSettings()
    titles: TitleSettings = TitleSettings()
    host_messages: bool = True
    """Whether errors, aborts and compactions leave a HOST message in the conversation."""
    max_list_bytes: int = 4095 * 2**10
    """Maximum size of the entries of a list that a caller gets without requesting pages. With the list's own fields,
    they stay below the 4 MiB that a gRPC client accepts by default."""
    private_files: tuple[Path, ...] = ()
    """Files with secrets of the server, which messages may not name. They need not exist."""
    spool_folder: Path = Path()
    """Folder of the nameless files for data that is too large for memory."""
    default_roots: tuple[Path, ...] = ()
    """Folders whose files may be read when the configuration names none: absolute, with links resolved."""
    written_roots: Mapping[Path, Path] = {}
    """Maps the configured names of roots that lead through links to the roots."""

    def roots(self, tenant: str) -> tuple[Path, ...]:
        """Returns the folders whose files a tenant's messages may name; empty when they may name none."""
        own = self.tenants.get(tenant, TenantSettings()).roots
        return (self.files.roots or self.default_roots) if own is None else own

    def bounded(self, page: Page) -> Page:
        """Returns the page, bounded in bytes when it has no size."""
        return page if page.size is not None else msgspec.structs.replace(page, max_bytes=self.max_list_bytes)

    def quotas_of(self, tenant: str) -> QuotaLimits:
        """Returns the limits of a tenant; None and 0 set no limit."""
        settings = self.tenants.get(tenant)
        return self.quotas if settings is None else settings.quotas

    def agent(self, name: str) -> Agent:
        """Returns an agent by name; "" is the default agent, which exists even if it is not configured."""
        return self.agents.get(name or DEFAULT_AGENT, Agent())

    def fallbacks(self, agent: str) -> tuple[ModelRef, ...]:
        """Returns the models to try, in this order, when the provider of an agent's model does not answer."""
        own = self.agent(agent).fallback_models
        return self.fallback_models if own is None else own

    def permission(self, agent: str, tool: str) -> PermissionAction:
        """Returns whether an agent's calls of a tool are allowed, denied or require a person's permission."""
        action = PermissionAction.ALLOW
        for rule in (*self.permissions, *self.agent(agent).permissions):
            if matches_glob((rule.pattern,), tool):
                action = rule.action
        return action
