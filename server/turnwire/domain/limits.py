"""The limits of the server: one table of sizes, counts and times that bound what anybody can make it do.

The configuration reads the section `[limits]` as this type, and `GetServerInfo` answers all but money. The fields,
defaults, ranges and docstrings become the reference of the keys (docs/reference/configuration.md); each docstring says
what happens at the limit, too. A name ends in the unit of its value. Limits that are parts of others are properties,
and no keys.
"""

from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from turnwire.domain.bounds import Count, Seconds, TokenLimit
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.money import PicoUsd


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
    """Bounds that keep one caller from taking the server down.

    Where nothing else is said, what goes over one is refused with `CONCURRENCY_LIMIT`.
    """

    # Messages and settings
    max_message_bytes: Count = 32 * 2**20
    """All that one message brings, attachments included; else `MESSAGE_TOO_LARGE`."""
    max_tools_bytes: Count = 2**20
    """Tools of one message: names, descriptions, schemas; else `MESSAGE_TOO_LARGE`."""

    # Answers of models
    max_answer_bytes: Count = 8 * 2**20
    """Text, reasoning and arguments of one answer, which else ends (`PROVIDER_STREAM_FAILED`), as at the next three."""
    max_answer_parts: Count = 2_000
    """Parts of one answer."""
    max_answer_received_bytes: Count = 128 * 2**20
    """All that comes for one answer, unpacked."""
    max_answer_seconds: Seconds = 3_600.0
    """Time of one answer."""
    flush_interval_seconds: Annotated[float, Meta(gt=0, le=0.2)] = 0.2
    """Longest time for which streamed text stays unsaved."""

    # Tool calls and MCP servers
    client_tool_timeout_seconds: Seconds = 600.0
    """Wait for a client tool's result without a lease; then the call fails."""
    leased_tool_timeout_seconds: Seconds = 86_400.0
    """The same, with leases."""
    question_timeout_seconds: Seconds = 540.0
    """Time after which a question of a tool expires."""
    max_open_permissions: Count = 100
    """Calls of one answer that wait for a person; others fail."""
    max_parallel_tool_calls: Count = 8
    """Server tools that run at once in one turn; others wait."""
    max_tool_output_bytes: Count = 256 * 1024
    """Output of a server tool; beyond, `full_output` has all."""

    # Queues and turns
    max_steps: Count = 50
    """Model calls of one turn, which then ends (MAX_STEPS); a message may set less."""
    max_running_turns: Count = 256
    """Turns whose model is asked at once; others wait, tenants in turns."""
    max_queued_messages: Annotated[int, Meta(ge=0)] = 100
    """Messages that wait in one session."""
    max_repeated_calls: Annotated[int, Meta(ge=2)] = 3
    """Steps in a row with equal calls and results after which a turn ends (`TOOL_CALL_REPEATED`)."""
    max_turn_tokens: TokenLimit = 0
    """[Budget](../guides/budgets.md) of one turn; 0: none. A message may set less."""
    max_turn_cost_pico_usd: PicoUsd = PicoUsd(0)
    """The same in money."""
    max_session_tokens: TokenLimit = 0
    """Budget of a session, which may set less."""
    max_session_cost_pico_usd: PicoUsd = PicoUsd(0)
    """The same in money."""

    # Watches and connections
    max_watchers: Count = 10_000
    """Event streams open at the same time."""
    max_calls: Count = 20_000
    """Calls at a time, open streams and unread answers included; without credentials and for watches of health a
    quarter, an eighth per address."""
    max_calls_per_address: Count = 15_000
    """Calls at a time of one IPv4 address, IPv6 /64, or all Unix sockets."""
    max_streams_per_connection: Count = 1_000
    """Calls at a time on one gRPC connection; clients wait with others."""

    # Memory
    max_memory_bytes: Count = 2**30
    """[Memory](../operate/overload.md#memory-pressure) of the process; at most nine tenths of its control group's."""

    # Archives
    max_exports: Count = 8
    """Exports at a time; each holds a connection of the database."""
    max_tenant_exports: Count = 2
    """Exports of one tenant at a time."""
    max_imports: Count = 4
    """Imports at a time, one of each tenant."""

    @property
    def max_pending_calls(self) -> int:
        """Calls of gRPC that have arrived and are not started: half of `limits.max_calls`, at least 1,000.

        As many watchers can reconnect at once. Above it, the newest call of the address and connection with the most
        pending calls is rejected. Calls that arrive faster than the server takes them from gRPC end as CANCELLED.
        """
        return max(1_000, self.max_calls // 2)

    @property
    def max_metadata_bytes(self) -> int:
        """Metadata of all calls that have more than a kilobyte of it: a sixteenth of `limits.max_memory_bytes`."""
        return self.max_memory_bytes // 16

    @property
    def max_request_memory_bytes(self) -> int:
        """Requests of 4 KiB and more that have arrived and are not carried out: 3/16 of `limits.max_memory_bytes`.

        Each is counted as five times its bytes; a single one may be larger. Others wait. With several tenants or
        addresses, each has half of it at most.
        """
        return self.max_memory_bytes * 3 // 16

    @property
    def max_bodies_bytes(self) -> int:
        """Bodies that the web listener is receiving: an eighth of `limits.max_memory_bytes`; always two of the largest.

        Of each slow body, the server holds the bytes sent so far. Above the limit, the newest body of the address with
        the most bytes is rejected.
        """
        return self.max_memory_bytes // 8

    @property
    def max_sending_bytes(self) -> int:
        """Responses over 16 KiB that are sent and that their clients have not read: 3/32 of `limits.max_memory_bytes`.

        A single one may be larger. Each is in memory twice. Further calls are rejected, and streams wait. Clients that
        have not read for half a minute are disconnected then.
        """
        return self.max_memory_bytes * 3 // 32

    @property
    def max_prompts_bytes(self) -> int:
        """Prompts on their way to models: an eighth of `limits.max_memory_bytes`.

        They count from before a conversation is read for one until its provider has read it. Further turns wait, those
        of each tenant in their order; conversations up to 512 KiB wait for none. A prompt that is larger than this ends
        its turn.
        """
        return self.max_memory_bytes // 8

    @property
    def max_waiting_calls_bytes(self) -> int:
        """Answers over 32 KiB whose tool calls wait: an eighth of `limits.max_memory_bytes`.

        They wait for people, clients and tools. The results so far count, too, and the files of results until they are
        stored. A tenant has half of it at most.
        """
        return self.max_memory_bytes // 8

    @property
    def flush_interval(self) -> timedelta:
        """Maximum time for which streamed text stays unsaved."""
        return timedelta(seconds=self.flush_interval_seconds)

    @property
    def client_tool_timeout(self) -> timedelta:
        """Time that a call of a client tool waits for its result without a lease."""
        return timedelta(seconds=self.client_tool_timeout_seconds)

    @property
    def leased_tool_timeout(self) -> timedelta:
        """Maximum time that a call of a client tool waits for its result, leased or not."""
        return timedelta(seconds=self.leased_tool_timeout_seconds)

    @property
    def question_timeout(self) -> timedelta:
        """Time after which a question of a tool expires."""
        return timedelta(seconds=self.question_timeout_seconds)

    @property
    def turn_budget(self) -> Budget:
        """Budget of one turn; also the maximum that a message may ask for."""
        return _budget(self.max_turn_tokens, self.max_turn_cost_pico_usd)

    @property
    def session_budget(self) -> Budget:
        """Budget of all turns of a session together; also the maximum that a session may ask for."""
        return _budget(self.max_session_tokens, self.max_session_cost_pico_usd)


def _budget(max_tokens: int, max_cost: PicoUsd) -> Budget:
    return Budget(max_tokens=max_tokens or None, max_cost_pico_usd=int(max_cost) or None)
