"""Passes each report to several observers."""

from collections.abc import Callable

import structlog

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.telemetry.observer import BatchEnd, ModelCallEnd, Observer, ToolCallEnd

log = structlog.get_logger()


class Observers(Observer):
    """Several observers as one. An observer that fails is logged and affects neither the others nor the work."""

    def __init__(self, *observers: Observer) -> None:
        """Takes the observers; each report reaches them in this order."""
        self._observers = observers

    def call_started(self, method: str) -> None:
        """See `Observer.call_started`."""
        self._tell(lambda observer: observer.call_started(method))

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """See `Observer.call_ended`."""
        self._tell(lambda observer: observer.call_ended(method, code, seconds))

    def turn_started(self, turn: Turn) -> None:
        """See `Observer.turn_started`."""
        self._tell(lambda observer: observer.turn_started(turn))

    def turn_ended(self, turn: Turn, first_output_seconds: float | None) -> None:
        """See `Observer.turn_ended`."""
        self._tell(lambda observer: observer.turn_ended(turn, first_output_seconds))

    def answer_ended(self, turn: Turn, message: Message, *, is_summary: bool) -> None:
        """See `Observer.answer_ended`."""
        self._tell(lambda observer: observer.answer_ended(turn, message, is_summary=is_summary))

    def model_call_ended(self, call: ModelCallEnd) -> None:
        """See `Observer.model_call_ended`."""
        self._tell(lambda observer: observer.model_call_ended(call))

    def tool_call_ended(self, call: ToolCallEnd) -> None:
        """See `Observer.tool_call_ended`."""
        self._tell(lambda observer: observer.tool_call_ended(call))

    def batch_ended(self, batch: BatchEnd) -> None:
        """See `Observer.batch_ended`."""
        self._tell(lambda observer: observer.batch_ended(batch))

    def watcher_fell_behind(self) -> None:
        """See `Observer.watcher_fell_behind`."""
        self._tell(lambda observer: observer.watcher_fell_behind())

    def _tell(self, report: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                report(observer)
            except Exception as error:  # a turn must not fail because it cannot be counted
                log.error("report_failed", observer=type(observer).__name__, exc_info=error)
