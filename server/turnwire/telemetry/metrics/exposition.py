"""The text that Prometheus reads."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest

from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.readings import Readings

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""The version that every Prometheus reads; the names of our metrics need no later one."""

READ_SECONDS = 1.0
"""How long to wait for the event loop; while it is held, the last readings are shown again."""

KEPT_SECONDS = 0.25
"""How long a text is answered again: whoever asks more often gets the processor no more often."""


class Exposition:
    """Writes all metrics as text. Used on the loop of the metrics' thread."""

    def __init__(
        self,
        instruments: Instruments,
        read: Callable[[], Readings],
        server_loop: asyncio.AbstractEventLoop,
        database: Path,
    ) -> None:
        """Args:
        instruments: The metrics.
        read: Returns the readings; called on the server's loop, must not raise.
        server_loop: That loop.
        database: The database file.
        """
        self._instruments = instruments
        self._read = read
        self._server_loop = server_loop
        self._database = database.resolve()
        self._text = b""
        self._text_until = 0.0
        self._writing = asyncio.Lock()  # requests that come together get one text; each has its own time limit

    async def text(self) -> bytes:
        """Returns the metrics, at most `KEPT_SECONDS` old."""
        loop = asyncio.get_running_loop()
        async with self._writing:
            if loop.time() >= self._text_until:
                await self._take_readings()
                self._take_sizes()
                self._text = await self._written()
                self._text_until = loop.time() + KEPT_SECONDS
        return self._text

    async def _take_readings(self) -> None:
        future: Future[Readings] = Future()

        def read() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(self._read())

        try:
            self._server_loop.call_soon_threadsafe(read)
            async with asyncio.timeout(READ_SECONDS):
                readings = await asyncio.wrap_future(future)
        except (TimeoutError, RuntimeError):  # the loop is held, or has ended
            return
        instruments = self._instruments
        instruments.turns_running.set(readings.running)
        instruments.turns_waiting.set(readings.waiting)
        instruments.messages_queued.set(readings.queued)
        instruments.watchers.set(readings.watchers)
        instruments.calls.set(readings.calls)
        instruments.memory_short.set(readings.is_memory_short)

    def _take_sizes(self) -> None:
        wal = self._database.with_name(f"{self._database.name}-wal")
        self._instruments.database_size.set(_size(self._database))
        self._instruments.wal_size.set(_size(wal))

    async def _written(self) -> bytes:
        texts = []
        for family in self._instruments.registry.collect():
            texts.append(generate_latest(_Single(family)))
            await asyncio.sleep(0)  # lets the server's thread have the interpreter between two families
        return b"".join(texts)


class _Single:
    """One family of metrics as a registry, without the times at which its series began."""

    def __init__(self, family: Metric) -> None:
        self._family = family
        family.samples = [sample for sample in family.samples if sample.name != f"{family.name}_created"]

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
