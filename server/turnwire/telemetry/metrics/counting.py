"""Counts the server's reports."""

from collections.abc import Iterable
from functools import cache

from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.money import PICO_USD
from turnwire.ports.telemetry.observer import CLIENT_TOOLS, BatchEnd, ModelCallEnd, Observer, ToolCallEnd
from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.metrics.labels import OTHER, ModelLabels, TenantLabels


class Counting(Observer):
    """Counts in the metrics."""

    def __init__(self, instruments: Instruments, models: ModelLabels, tool_sources: Iterable[str]) -> None:
        """Args:
        instruments: The instruments that count.
        models: Bounds the labels of models.
        tool_sources: Names of the configured MCP servers.
        """
        self._instruments = instruments
        self._models = models
        self._sources = frozenset((*tool_sources, CLIENT_TOOLS))
        self._tenants = TenantLabels()
        # looking up a series by its labels takes longer than counting, and every call does it
        self._in_flight = cache(instruments.rpc_in_flight.labels)
        self._requests = cache(instruments.rpc_requests.labels)
        self._durations = cache(instruments.rpc_duration.labels)

    def call_started(self, method: str) -> None:
        """Counts a call that runs."""
        self._in_flight(method).inc()

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Counts a call that ended."""
        self._in_flight(method).dec()
        self._requests(method, code).inc()
        self._durations(method).observe(seconds)

    def turn_started(self, turn: Turn) -> None:
        """Counts a turn that runs."""
        self._instruments.turns_started.inc()

    def turn_ended(self, turn: Turn, first_output_seconds: float | None) -> None:
        """Counts a turn that ended. One that was dropped while it waited has no duration."""
        reason = str(turn.finish_reason or OTHER)
        self._instruments.turns_ended.labels(reason, *self._tenant(turn)).inc()
        if turn.started_at is not None and turn.ended_at is not None:
            self._instruments.turn_duration.observe((turn.ended_at - turn.started_at).total_seconds())
        if first_output_seconds is not None:
            self._instruments.turn_first_output.observe(first_output_seconds)

    def answer_ended(self, turn: Turn, message: Message, *, is_summary: bool) -> None:
        """Counts a step or a summary with its tokens and its cost."""
        run, usage, instruments = message.model_run, message.usage, self._instruments
        asked = turn.model if run is None else ModelRef(run.provider_id, run.model_requested)
        model, tenant = self._models.of(asked), self._tenant(turn)
        (instruments.summaries if is_summary else instruments.steps).labels(*model, *tenant).inc()
        if usage is None:
            return
        kinds = {
            "input": usage.input_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        for kind, count in kinds.items():
            if count:
                instruments.tokens.labels(*model, kind, *tenant).inc(count)
        if message.cost_pico_usd is None:
            instruments.unpriced.labels(*model).inc()
        else:
            instruments.cost.labels(*model, *tenant).inc(message.cost_pico_usd / PICO_USD)

    def model_call_ended(self, call: ModelCallEnd) -> None:
        """Counts an attempt, its failure and what follows."""
        instruments, failure = self._instruments, call.failure
        model = self._models.of(call.model, has_answered=failure is None)
        instruments.model_calls.labels(*model).inc()
        instruments.model_call_duration.labels(*model).observe(call.seconds)
        if call.first_output_seconds is not None:
            instruments.model_call_first_output.labels(*model).observe(call.first_output_seconds)
        if failure is not None:
            instruments.model_call_failures.labels(*model, failure.reason).inc()
        if call.retry_delay is not None:
            instruments.model_call_retries.labels(*model).inc()
        if call.fallback is not None:
            instruments.model_call_fallbacks.labels(*model).inc()

    def tool_call_ended(self, call: ToolCallEnd) -> None:
        """Counts a tool's result."""
        source = call.source if call.source in self._sources else OTHER
        self._instruments.tool_calls.labels(source, "error" if call.is_error else "success").inc()
        self._instruments.tool_duration.labels(source).observe(call.seconds)

    def batch_ended(self, batch: BatchEnd) -> None:
        """Counts a transaction."""
        instruments, stored = self._instruments, batch.commits - batch.failed
        for result, count in (("stored", stored), ("failed", batch.failed)):
            if count:
                instruments.commits.labels(result).inc(count)
        instruments.batch_commits.observe(batch.commits)
        instruments.batch_duration.observe(batch.seconds)
        instruments.commit_duration.observe(batch.longest_seconds)

    def watcher_fell_behind(self) -> None:
        """Counts a watcher that fell behind."""
        self._instruments.watcher_lags.inc()

    def _tenant(self, turn: Turn) -> tuple[str, ...]:
        return (self._tenants.of(turn.tenant),) if self._instruments.by_tenant else ()
