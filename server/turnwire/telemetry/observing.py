"""Puts together what observes one server: log lines and the watch of its event loop."""

from turnwire.config import Config
from turnwire.ports.observer import Observer
from turnwire.providers.settings import address_of
from turnwire.telemetry.log_lines import LogLines
from turnwire.telemetry.loop_watch import LoopWatch
from turnwire.telemetry.observers import Observers


class Observing:
    """Everything that observes a server: made and started on its loop before its other parts, closed after them."""

    def __init__(self, config: Config) -> None:
        """Takes the whole configuration."""
        self._stuck_seconds = config.log.stuck_loop_seconds
        self._loop_watch: LoopWatch | None = None
        lines = LogLines({name: address_of(settings) for name, settings in config.providers.items()})
        self.observer: Observer = Observers(lines)
        """Receives the reports of all parts."""

    def start(self) -> None:
        """Begins to watch the running loop."""
        if self._stuck_seconds:
            self._loop_watch = LoopWatch(self._stuck_seconds)
            self._loop_watch.start()

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        if self._loop_watch is not None:
            self._loop_watch.stop()
