"""Saving an answer while it streams: growing text now and then, ended parts at once, neither awaited by the stream."""

import asyncio
from functools import partial

import structlog

from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.events import PartFinished
from turnwire.ports.commit import Committed, NewEvent, PutMessage

log = structlog.get_logger()


class StepJournal:
    """Writes one streaming message behind its stream.

    `_in_flight` holds the commits under way; the store keeps their order. `_timer` is set while text is unsaved. Both
    are empty after `settle`. Used on the event loop only.
    """

    def __init__(self, environment: Environment, stream: MessageStream) -> None:
        """Takes the stream to save; nothing is saved before `note_change`."""
        self._environment = environment
        self._stream = stream
        self._in_flight: set[asyncio.Future[Committed]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ended: list[int] = []  # parts that ended while a save was under way
        self._interval = environment.settings.limits.flush_interval.total_seconds()

    def note_change(self) -> None:
        """Sees to it that what changed in the stream gets saved: ended parts now, growing ones within the interval."""
        self._ended += self._stream.take_ended()
        if self._ended:
            if not self._in_flight:  # else with the next save: a thousand calls in one packet are two saves
                self._save()
        elif self._timer is None and self._stream.has_unsaved:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._save)

    async def flush(self) -> None:
        """Saves what is unsaved and returns when it, and all saved before, is durable. Safe to cancel."""
        if self._stream.has_unsaved:
            self._save()
        await self._wait()

    async def settle(self) -> None:
        """Saves ended parts, stops saving and waits for it; what could not be saved counts as unsaved again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._wait()

    async def _wait(self) -> None:
        while self._in_flight:  # the end of one begins the next while ended parts wait
            await asyncio.wait(tuple(self._in_flight))

    def _save(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._environment.clock()
        self._stream.touch(now)
        message = self._stream.snapshot()
        unsaved, ended, self._ended = self._stream.take_unsaved(), tuple(self._ended), []
        events = tuple(
            NewEvent(PartFinished(message.message_id, message.parts[index]), message.turn_id) for index in ended
        )
        work = Work((PutMessage(message, unsaved),), events)
        saving = self._environment.commit(message.session_id, work, now)
        self._in_flight.add(saving)
        saving.add_done_callback(partial(self._finish_save, unsaved, ended))

    def _finish_save(self, unsaved: tuple[int, ...], ended: tuple[int, ...], saving: asyncio.Future[Committed]) -> None:
        self._in_flight.discard(saving)
        error = saving.exception()
        if error is not None:
            # the end of the message writes all parts once more, so nothing is lost unless that fails too
            log.warning("streaming_text_not_saved", message_id=self._stream.message_id, error=type(error).__name__)
            self._stream.give_back(unsaved, ended)
        if self._ended and not self._in_flight:
            self._save()
