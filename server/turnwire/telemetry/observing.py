"""Sets up the observation of one server: log lines, monitors of its loop and memory and, if configured, metrics."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import structlog

from turnwire.config import Config
from turnwire.config.addresses import host_and_port, is_open
from turnwire.domain.conversation.messages import ModelRef
from turnwire.ports.telemetry.observer import Observer
from turnwire.providers.settings import address_of
from turnwire.telemetry.logs.lines import LogLines
from turnwire.telemetry.loop_monitor import LoopMonitor
from turnwire.telemetry.memory_monitor import MemoryMonitor, OnMemory
from turnwire.telemetry.observers import Observers
from turnwire.telemetry.readings import Readings

log = structlog.get_logger()


class Observation(NamedTuple):
    """The observation of a server."""

    observer: Observer
    """Receives the reports of all parts."""
    metrics_address: str = ""
    """The address of the metrics with the actual port; "" without metrics."""
    on_delay: Callable[[float], None] = lambda _: None
    """Receives the delays of the event loop in seconds."""


@contextlib.asynccontextmanager
async def observing(
    config: Config,
    read: Callable[[], Readings],
    on_memory: OnMemory,
    give_up: Callable[[], None],
) -> AsyncIterator[Observation]:
    """Observes a server while the context is open: from before its other parts start until they have stopped.

    Args:
        config: The complete configuration.
        read: Returns the server's pending work; called on the loop, must not raise.
        on_memory: Called on the loop at each reading of the memory.
        give_up: Called on the loop repeatedly while memory pressure is high or critical: drops what can be rebuilt.

    Raises:
        OSError: the address of the metrics is in use.
    """
    async with contextlib.AsyncExitStack() as stack:
        lines = LogLines({name: address_of(one) for name, one in config.providers.items()})
        observation = Observation(Observers(lines))
        if config.metrics.listen:
            observation = await stack.enter_async_context(_metrics(config, read, lines))
        if config.metrics.listen or config.log.stuck_loop_seconds:
            loop_monitor = LoopMonitor(config.log.stuck_loop_seconds, observation.on_delay)
            stack.callback(loop_monitor.stop)
            loop_monitor.start()
        memory_monitor = MemoryMonitor(config.limits.max_memory_bytes, on_memory, give_up)
        stack.push_async_callback(memory_monitor.aclose)
        memory_monitor.start()
        yield observation


@contextlib.asynccontextmanager
async def _metrics(config: Config, read: Callable[[], Readings], lines: Observer) -> AsyncIterator[Observation]:
    # importing them takes a noticeable part of a start, which servers without metrics save
    from turnwire.telemetry.metrics.counting import Counting  # noqa: PLC0415
    from turnwire.telemetry.metrics.instruments import Instruments  # noqa: PLC0415
    from turnwire.telemetry.metrics.labels import ModelLabels  # noqa: PLC0415
    from turnwire.telemetry.metrics.server import MetricsServer  # noqa: PLC0415

    instruments, is_private = Instruments(by_tenant=config.metrics.by_tenant), not is_open(config.metrics.listen)
    counting = Counting(instruments, ModelLabels(config.providers, named_models(config)), config.mcp)
    server = MetricsServer(instruments, read, config.storage.path, checks_host=is_private)
    address = server.start(*host_and_port(config.metrics.listen))
    log.info("serving_metrics", address=address)
    if not is_private:
        log.warning("metrics_open_to_other_machines", address=address)
    try:
        yield Observation(Observers(lines, counting), address, instruments.loop_delay.observe)
    finally:
        await server.aclose()


def named_models(config: Config) -> set[ModelRef]:
    """Returns all models that the configuration names."""
    agents = config.agents.values()
    named = [config.default_model, config.compaction.model, *config.models, *config.fallback_models]
    named += [agent.model for agent in agents]
    named += [model for agent in agents for model in agent.fallback_models or ()]
    listed = {ModelRef(name, model) for name, provider in config.providers.items() for model in provider.models}
    return {model for model in named if model is not None} | listed
