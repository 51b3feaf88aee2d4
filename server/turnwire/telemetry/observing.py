"""Puts together what observes one server: log lines, watches of its loop and memory and, if configured, metrics."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from turnwire.config import Config
from turnwire.config.addresses import host_and_port, is_open
from turnwire.domain.conversation.messages import ModelRef
from turnwire.ports.telemetry.observer import Observer
from turnwire.providers.settings import address_of
from turnwire.telemetry.logs.lines import LogLines
from turnwire.telemetry.memory_monitor import MemoryMonitor
from turnwire.telemetry.observers import Observers
from turnwire.telemetry.readings import Readings
from turnwire.telemetry.watches.loop_watch import LoopWatch

if TYPE_CHECKING:
    from turnwire.telemetry.metrics.server import MetricsServer

log = structlog.get_logger()


class Observing:
    """Everything that observes a server: made and started on its loop before its other parts, closed after them."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Readings],
        on_memory: Callable[[int | None], None] = lambda _: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        config: The whole configuration.
        read: Returns how much the server has to do; called on the loop, must not raise.
        on_memory: Called on the loop with what the process may have when memory becomes short, and with None when it
            is enough again.
        give_up: Called on the loop while memory is short: drops what can be made again.
        """
        self._config = config
        self._read = read
        self._memory_monitor = MemoryMonitor(config.limits.max_memory_bytes, on_memory, give_up)
        self._loop_watch: LoopWatch | None = None
        self._server: MetricsServer | None = None
        self.observer: Observer = Observers()
        """Receives the reports of all parts; complete after `start`."""

    def start(self) -> str:
        """Begins to observe. Returns the address of the metrics with the actual port; "" without metrics.

        Raises:
            OSError: the address of the metrics is taken.
        """
        config = self._config
        self._memory_monitor.start()
        lines = LogLines({name: address_of(settings) for name, settings in config.providers.items()})
        if not config.metrics.listen:
            self.observer = Observers(lines)
            if config.log.stuck_loop_seconds:
                self._watch_loop(lambda _: None)
            return ""
        # its import takes a noticeable part of a start, which servers without metrics save
        from turnwire.telemetry.metrics.counting import Counting  # noqa: PLC0415
        from turnwire.telemetry.metrics.instruments import Instruments  # noqa: PLC0415
        from turnwire.telemetry.metrics.labels import ModelLabels  # noqa: PLC0415
        from turnwire.telemetry.metrics.server import MetricsServer  # noqa: PLC0415

        instruments = Instruments(by_tenant=config.metrics.by_tenant)
        counting = Counting(instruments, ModelLabels(config.providers, named_models(config)), config.mcp)
        is_private = not is_open(config.metrics.listen)
        self._server = MetricsServer(instruments, self._read, config.storage.path, checks_host=is_private)
        address = self._server.start(*host_and_port(config.metrics.listen))
        self.observer = Observers(lines, counting)
        self._watch_loop(instruments.loop_delay.observe)
        log.info("serving_metrics", address=address)
        if not is_private:
            log.warning("metrics_open_to_other_machines", address=address)
        return address

    async def aclose(self) -> None:
        """Ends the watch and the metrics' server. Idempotent."""
        await self._memory_monitor.aclose()
        if self._loop_watch is not None:
            self._loop_watch.stop()
        if self._server is not None:
            await self._server.aclose()

    def _watch_loop(self, on_tick: Callable[[float], None]) -> None:
        self._loop_watch = LoopWatch(self._config.log.stuck_loop_seconds, on_tick)
        self._loop_watch.start()


def named_models(config: Config) -> set[ModelRef]:
    """Returns all models that the configuration names."""
    agents = config.agents.values()
    named = [config.default_model, config.compaction.model, *config.models, *config.fallback_models]
    named += [agent.model for agent in agents]
    named += [model for agent in agents for model in agent.fallback_models or ()]
    listed = {ModelRef(name, model) for name, provider in config.providers.items() for model in provider.models}
    return {model for model in named if model is not None} | listed
