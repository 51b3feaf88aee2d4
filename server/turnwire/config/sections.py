"""The sections of `turnwire.toml` as types; `turnwire.config` describes them and reads them."""

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from turnwire.core.settings import CompactionSettings, Limits, Retries
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.money import PICO_USD

MAX_USD = 1_000_000
"""Largest price or budget: in pico-USD it still fits the 64 bits of the contract and the database."""

Count = Annotated[int, Meta(ge=1)]
Tokens = Annotated[int, Meta(ge=1, le=10**15)]
TokenLimit = Annotated[int, Meta(ge=0, le=10**15)]
"""0 sets no limit."""
Seconds = Annotated[float, Meta(gt=0, le=86_400)]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Capability = Literal["tools", "images", "documents", "reasoning"]


class PicoUsd(int):
    """Money in pico-USD. The file has USD, as a number or a text such as "0.075"; nothing is rounded."""


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`."""

    listen: str = "127.0.0.1:50051"
    max_message_bytes: Count = 64 * 2**20
    """Twice the limit of a message's content: data URIs need a third more, JSON and names the rest."""
    shutdown_grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    """Leaves a stop within two seconds."""
    heartbeat_seconds: Seconds = 15.0


class StorageConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[storage]`."""

    path: Path = Path("turnwire.db")
    retained_events_per_session: Count = 10_000


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`."""

    level: LogLevel = "info"
    format: LogFormat = "text"


class DefaultsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[defaults]`."""

    model: str = "offline/echo"
    fallback_models: tuple[str, ...] = ()
    builtin_providers: bool = True
    host_messages: bool = True


class FilesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[files]`."""

    roots: tuple[Path, ...] = ()
    max_bytes: Count = Limits().max_file_bytes


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`; see `turnwire.core.settings.Limits`."""

    max_steps: Count = Limits().max_steps
    max_running_turns: Count = Limits().max_running_turns
    max_queued_messages: Annotated[int, Meta(ge=0)] = Limits().max_queued_messages
    max_watchers: Count = Limits().max_watchers
    max_message_bytes: Count = Limits().max_message_bytes
    max_answer_bytes: Count = Limits().max_answer_bytes
    flush_interval_seconds: Annotated[float, Meta(gt=0, le=0.2)] = Limits().flush_interval.total_seconds()
    client_tool_timeout_seconds: Seconds = Limits().client_tool_timeout.total_seconds()
    max_parallel_tool_calls: Count = Limits().max_parallel_tool_calls
    max_tool_output_bytes: Count = Limits().max_tool_output_bytes
    max_repeated_calls: Annotated[int, Meta(ge=2)] = Limits().max_repeated_calls
    max_turn_tokens: TokenLimit = 0
    max_turn_cost_usd: PicoUsd = PicoUsd(0)
    max_session_tokens: TokenLimit = 0
    max_session_cost_usd: PicoUsd = PicoUsd(0)

    def limits(self, max_file_bytes: int) -> Limits:
        """Returns the limits as the core takes them."""
        return Limits(
            max_steps=self.max_steps,
            max_running_turns=self.max_running_turns,
            max_queued_messages=self.max_queued_messages,
            max_watchers=self.max_watchers,
            max_message_bytes=self.max_message_bytes,
            max_answer_bytes=self.max_answer_bytes,
            max_file_bytes=max_file_bytes,
            flush_interval=timedelta(seconds=self.flush_interval_seconds),
            client_tool_timeout=timedelta(seconds=self.client_tool_timeout_seconds),
            max_parallel_tool_calls=self.max_parallel_tool_calls,
            max_tool_output_bytes=self.max_tool_output_bytes,
            max_repeated_calls=self.max_repeated_calls,
            turn_budget=_budget(self.max_turn_tokens, self.max_turn_cost_usd),
            session_budget=_budget(self.max_session_tokens, self.max_session_cost_usd),
        )


class RetriesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retries]`; see `turnwire.core.settings.Retries`."""

    max_retries: Annotated[int, Meta(ge=0, le=20)] = Retries().max_retries
    first_delay_seconds: Seconds = Retries().first_delay.total_seconds()
    longest_delay_seconds: Seconds = Retries().longest_delay.total_seconds()

    def retries(self) -> Retries:
        """Returns the pace of retries as the core takes it; the first pause is never longer than the longest."""
        return Retries(
            max_retries=self.max_retries,
            first_delay=timedelta(seconds=self.first_delay_seconds),
            longest_delay=timedelta(seconds=self.longest_delay_seconds),
        )


class CompactionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[compaction]`; see `turnwire.core.settings.CompactionSettings`."""

    enabled: bool = CompactionSettings().enabled
    threshold: Annotated[float, Meta(ge=0.1, le=0.99)] = CompactionSettings().threshold
    keep: Annotated[float, Meta(ge=0.05, le=0.9)] = CompactionSettings().keep
    model: str = ""


class ModelSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models."PROVIDER/MODEL"]`; see `turnwire.providers.settings.ModelSettings`."""

    name: str = ""
    description: str = ""
    context_window_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    input_usd_per_million: PicoUsd | None = None
    output_usd_per_million: PicoUsd | None = None
    cache_read_usd_per_million: PicoUsd | None = None
    cache_write_usd_per_million: PicoUsd | None = None
    capabilities: tuple[Capability, ...] | None = None


class AgentSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`."""

    system: str = ""
    model: str = ""
    fallback_models: tuple[str, ...] | None = None
    description: str = ""
    color: Annotated[str, Meta(pattern="^(#[0-9a-fA-F]{6})?$")] = ""
    tools: tuple[str, ...] | None = None
    permissions: dict[str, Any] = {}


def custom_value(kind: type, value: object) -> Path | PicoUsd:
    """Reads paths and money for msgspec. Raises ValueError."""
    if kind is PicoUsd:
        return _pico_usd(value)
    if kind is not Path or not isinstance(value, str):
        raise ValueError("Expected a path")
    return Path(value)


def _pico_usd(value: object) -> PicoUsd:
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        raise ValueError('Expected USD as a number or a text such as "0.075"')
    try:
        usd = Decimal(value)
    except InvalidOperation:
        raise ValueError('Expected USD as a number or a text such as "0.075"') from None
    if not usd.is_finite() or not 0 <= usd <= MAX_USD:
        raise ValueError(f"Expected from 0 to {MAX_USD} USD")
    pico = Fraction(usd) * PICO_USD
    if pico.denominator != 1:
        raise ValueError("Expected at most 12 decimals")
    return PicoUsd(pico.numerator)


def _budget(max_tokens: int, max_cost: PicoUsd) -> Budget:
    return Budget(max_tokens=max_tokens or None, max_cost_pico_usd=int(max_cost) or None)


def explained(key: str, error: msgspec.ValidationError, kind: type) -> tuple[str, str]:
    """Returns the full key path and the problem out of msgspec's message."""
    problem, _, inner = str(error).partition(" - at `$")
    path = key + inner.rstrip("`")
    if unknown := re.search(r"unknown field `(.*)`", problem):
        return f"{path}.{unknown[1]}", "is not a known key"
    if missing := re.search(r"missing required field `(.*)`", problem):
        return f"{path}.{missing[1]}", "is required"
    hint = get_type_hints(kind).get(re.sub(r"\[.*", "", inner.strip(".`")))
    if choices := _choices(hint):
        problem += f"; one of {', '.join(choices)}"
    return path, problem[:1].lower() + problem[1:]


def _choices(hint: object) -> tuple[str, ...]:
    """Returns the texts that a type allows, lists of them and None included; empty when it allows all."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(filter(None, map(_choices, get_args(hint))), ())
