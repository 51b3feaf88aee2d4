"""Sections of the configuration file that become settings of the core. `turnwire.config` says what each key means."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from turnwire.core.settings import Limits, Retries

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class Defaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[defaults]`."""

    model: str = "offline/echo"
    fallback_models: tuple[str, ...] = ()
    builtin_providers: bool = True


class Files(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[files]`."""

    roots: tuple[Path, ...] = ()
    max_bytes: Count = Limits().max_file_bytes


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`."""

    max_steps: Count = Limits().max_steps
    max_running_turns: Count = Limits().max_running_turns
    max_queued_messages: Annotated[int, Meta(ge=0)] = Limits().max_queued_messages
    max_watchers: Count = Limits().max_watchers
    max_message_bytes: Count = Limits().max_message_bytes
    max_answer_bytes: Count = Limits().max_answer_bytes
    flush_interval_seconds: Annotated[float, Meta(gt=0, le=0.2)] = Limits().flush_interval.total_seconds()
    client_tool_timeout_seconds: Seconds = Limits().client_tool_timeout.total_seconds()

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
        )


class RetriesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retries]`."""

    max_retries: Annotated[int, Meta(ge=0, le=20)] = Retries().max_retries
    first_delay_seconds: Seconds = Retries().first_delay.total_seconds()
    longest_delay_seconds: Seconds = Retries().longest_delay.total_seconds()

    def retries(self) -> Retries:
        """Returns the pace of retries as the core takes it."""
        return Retries(
            max_retries=self.max_retries,
            first_delay=timedelta(seconds=self.first_delay_seconds),
            longest_delay=timedelta(seconds=self.longest_delay_seconds),
        )


class AgentSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`."""

    system: str = ""
    model: str = ""
    description: str = ""
    color: Annotated[str, Meta(pattern="^(#[0-9a-fA-F]{6})?$")] = ""
