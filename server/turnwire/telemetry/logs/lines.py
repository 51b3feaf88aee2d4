"""The log lines of turns and model calls, made from the server's reports.

No line has content: neither prompts, answers nor a provider's own words. Names that callers or providers chose are
truncated and made printable.
"""

from collections.abc import Mapping

import structlog

from turnwire.domain.conversation.turns import Turn
from turnwire.domain.money import Usage, usd
from turnwire.domain.text import one_line
from turnwire.ports.telemetry.observer import ModelCallEnd, Observer

MAX_NAME_CHARS = 128
"""Maximum length of a name in a line."""

log = structlog.get_logger()


class LogLines(Observer):
    """Writes a line for each turn's end and for each model call that failed."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """Takes the host of each provider by its id."""
        self._addresses = addresses

    def turn_ended(self, turn: Turn, first_output_seconds: float | None) -> None:
        """Writes `turn`: the results of the turn and its usage."""
        usage = turn.usage or Usage()
        ran = turn.ended_at - turn.started_at if turn.ended_at and turn.started_at else None
        log.info(
            "turn",
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            tenant=one_line(turn.tenant, MAX_NAME_CHARS),
            subject=one_line(turn.subject, MAX_NAME_CHARS),
            provider=one_line(turn.model.provider_id, MAX_NAME_CHARS),
            model=one_line(turn.model.model_id, MAX_NAME_CHARS),
            finish_reason=str(turn.finish_reason or ""),
            failure=turn.failure.reason if turn.failure is not None else "",
            steps=turn.steps,
            input_tokens=usage.prompt_total,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.generated_total,
            cost_usd=None if turn.cost_pico_usd is None else usd(turn.cost_pico_usd),
            **({} if turn.known_cost_pico_usd is None else {"known_cost_usd": usd(turn.known_cost_pico_usd)}),
            milliseconds=0 if ran is None else _milliseconds(ran.total_seconds()),
            first_output_milliseconds=_milliseconds(first_output_seconds),
        )

    def model_call_ended(self, call: ModelCallEnd) -> None:
        """Writes `model_call_failed` for a failed call: the provider, the error and what follows."""
        if call.failure is None:
            return
        delay, fallback = call.retry_delay, call.fallback
        next_model = "" if fallback is None else f"{fallback.provider_id}/{fallback.model_id}"
        log.warning(
            "model_call_failed",
            session_id=call.turn.session_id,
            turn_id=call.turn.turn_id,
            provider=one_line(call.model.provider_id, MAX_NAME_CHARS),
            model=one_line(call.model.model_id, MAX_NAME_CHARS),
            address=one_line(self._addresses.get(call.model.provider_id, ""), MAX_NAME_CHARS),
            reason=call.failure.reason,
            status=one_line(call.failure.metadata.get("status", ""), MAX_NAME_CHARS),
            attempt=call.attempt,
            retried=delay is not None,
            retry_milliseconds=None if delay is None else _milliseconds(delay.total_seconds()),
            fallback=one_line(next_model, MAX_NAME_CHARS),
            milliseconds=_milliseconds(call.seconds),
        )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
