"""All metrics of the server, in a registry of their own. docs/reference/metrics.md is generated from them."""

import platform
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

import turnwire

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets in seconds for what the server does itself."""

_SLOW = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Buckets in seconds for what models, tools and people do."""

_DELAYS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

_MODEL = ("provider", "model")


class Family(NamedTuple):
    """The description of one metric before it has a value."""

    name: str
    """As Prometheus shows it; a histogram's series add `_bucket`, `_sum` and `_count`."""
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str


class Instruments:
    """The metrics. Safe to use on the event loop while another thread reads them."""

    def __init__(self, *, by_tenant: bool = False) -> None:
        """Args:
        by_tenant: Adds a label for the tenant to the metrics of turns.
        """
        self.registry = CollectorRegistry()
        self.families: list[Family] = []
        """All metrics of the server itself; `registry` has those of the process as well."""
        self.by_tenant = by_tenant
        self._make_calls()
        self._make_turns()
        self._make_model_calls()
        self._make_storage()
        self._make_process()

    def _make_calls(self) -> None:
        self.rpc_requests = self._counter("rpc_requests", "Calls that ended.", "method", "code")
        self.rpc_duration = self._histogram(
            "rpc_duration_seconds", "From a call to its end; a stream lasts as long as its caller reads.", "method"
        )
        self.rpc_in_flight = self._gauge("rpc_in_flight", "Calls that run, open streams included.", "method")
        self.watchers = self._gauge("watchers", "Event streams that are open.")
        self.calls = self._gauge("calls", "Calls that run, of all listeners, open streams included.")
        self.watcher_lags = self._counter(
            "watcher_lags", "Times that a watcher read too slowly and was given stored events instead of live ones."
        )

    def _make_turns(self) -> None:
        tenant = ("tenant",) if self.by_tenant else ()
        self.turns_started = self._counter(
            "turns_started", "Turns that began to run; those that went on after a restart of the server included."
        )
        self.turns_ended = self._counter("turns_ended", "Turns whose end is stored.", "finish_reason", *tenant)
        self.turns_running = self._gauge("turns_running", "Turns that run, the waiting ones included.")
        self.turns_waiting = self._gauge("turns_waiting", "Running turns that wait for a person or a client's tool.")
        self.messages_queued = self._gauge("messages_queued", "Messages that wait behind the running turn.")
        self.turn_duration = self._histogram("turn_duration_seconds", "From a turn's start to its end.", buckets=_SLOW)
        self.turn_first_output = self._histogram(
            "turn_first_output_seconds", "From a turn's start to the first content of its answer.", buckets=_SLOW
        )
        self.steps = self._counter(
            "steps", "Answers of models in turns, failed and stopped ones included.", *_MODEL, *tenant
        )
        self.summaries = self._counter(
            "summaries", "Calls of models for summaries of older messages.", *_MODEL, *tenant
        )
        self.tokens = self._counter(
            "tokens",
            "Tokens by kind: input, cache_read, cache_write, output, reasoning. The kinds do not overlap.",
            *(*_MODEL, "kind", *tenant),
        )
        self.cost = self._counter(
            "cost_usd", "Cost of steps and summaries with a known price, in USD.", *_MODEL, *tenant
        )
        self.unpriced = self._counter(
            "unpriced_answers", "Steps and summaries whose price is unknown; no cost was added.", *_MODEL
        )
        self.tool_calls = self._counter(
            "tool_calls", "Results of tools; the source is an MCP server's name or client.", "source", "result"
        )
        self.tool_duration = self._histogram(
            "tool_call_duration_seconds", "How long a tool took for its result.", "source", buckets=_SLOW
        )

    def _make_model_calls(self) -> None:
        self.model_calls = self._counter(
            "model_calls", "Attempts to get an answer of a model; those that were stopped are not counted.", *_MODEL
        )
        self.model_call_failures = self._counter(
            "model_call_failures", "Attempts that failed, by the reason of the failure.", *_MODEL, "reason"
        )
        self.model_call_retries = self._counter(
            "model_call_retries", "Failed attempts after which the same model is asked again.", *_MODEL
        )
        self.model_call_fallbacks = self._counter(
            "model_call_fallbacks", "Failed attempts after which another model is asked.", *_MODEL
        )
        self.model_call_duration = self._histogram(
            "model_call_duration_seconds",
            "From the request to the end of the answer or the failure.",
            *_MODEL,
            buckets=_SLOW,
        )
        self.model_call_first_output = self._histogram(
            "model_call_first_output_seconds",
            "From the request to the first content of the answer.",
            *_MODEL,
            buckets=_SLOW,
        )

    def _make_storage(self) -> None:
        self.commits = self._counter("storage_commits", "Units of work that were stored, or failed.", "result")
        self.batch_commits = self._histogram(
            "storage_batch_commits", "Units of work in one transaction.", buckets=_COUNTS
        )
        self.batch_duration = self._histogram("storage_batch_duration_seconds", "How long a transaction took.")
        self.commit_duration = self._histogram(
            "storage_commit_duration_seconds", "From a commit to its end, of the oldest unit of each transaction."
        )
        self.database_size = self._gauge("storage_database_bytes", "Size of the database file.")
        self.wal_size = self._gauge("storage_wal_bytes", "Size of the file with what is not in the database file yet.")

    def _make_process(self) -> None:
        self.loop_delay = self._histogram(
            "event_loop_delay_seconds",
            "How late a timer of the event loop runs; measured at least 10 times a second.",
            buckets=_DELAYS,
        )
        self.memory_short = self._gauge("memory_short", "1 while memory is critical, else 0: soon new work is refused.")
        info = self._gauge("build_info", "Always 1; the labels have the versions.", "version", "python")
        info.labels(turnwire.__version__, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.families.append(Family(f"turnwire_{name}_total", "counter", labels, text))
        return Counter(f"turnwire_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self.families.append(Family(f"turnwire_{name}", "gauge", labels, text))
        return Gauge(f"turnwire_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _QUICK) -> Histogram:
        self.families.append(Family(f"turnwire_{name}", "histogram", labels, text))
        return Histogram(f"turnwire_{name}", text, labels, buckets=buckets, registry=self.registry)
