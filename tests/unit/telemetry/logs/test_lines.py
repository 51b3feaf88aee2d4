"""The lines of turns and model calls: all facts, no content, nothing that breaks a line."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from tests.support.fakes.domain_values import NOW, make_turn
from turnwire.domain.conversation.messages import Failure, FinishReason, ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderRateLimited, ProviderUnavailable
from turnwire.domain.money import Usage
from turnwire.ports.telemetry.observer import ModelCallEnd
from turnwire.telemetry.logs.lines import MAX_NAME_CHARS, LogLines

LINES = LogLines({"acme": "models.example:8443"})
MODEL = ModelRef("acme", "big")


def _ended(**fields: object) -> Turn:
    defaults = {
        "model": MODEL,
        "tenant": "blue",
        "subject": "ada",
        "started_at": NOW,
        "ended_at": NOW + timedelta(seconds=2.5),
        "finish_reason": FinishReason.STOP,
    }
    return make_turn(**{**defaults, **fields})


def test_a_turn_is_one_line_with_all_that_it_used() -> None:
    """Money is exact, cached tokens are a part of the input."""
    usage = Usage(input_tokens=10, cache_read_tokens=90, output_tokens=3, reasoning_tokens=4)
    turn = _ended(usage=usage, cost_pico_usd=1_250_000_001, steps=2)
    with capture_logs() as lines:
        LINES.turn_ended(turn, 0.75)
    assert lines == [
        {
            "log_level": "info",
            "event": "turn",
            "session_id": "ses_1",
            "turn_id": "trn_1",
            "tenant": "blue",
            "subject": "ada",
            "provider": "acme",
            "model": "big",
            "finish_reason": "stop",
            "failure": "",
            "steps": 2,
            "input_tokens": 100,
            "cached_tokens": 90,
            "output_tokens": 7,
            "cost_usd": "0.001250000001",
            "milliseconds": 2500,
            "first_output_milliseconds": 750,
        }
    ]


def test_what_is_unknown_is_not_zero() -> None:
    """Neither tokens nor money; of money that is partly known the known part is named so."""
    failed = _ended(
        started_at=None,
        finish_reason=FinishReason.ERROR,
        failure=Failure("PROVIDER_UNAVAILABLE", "the words of somebody"),
    )
    with capture_logs() as lines:
        LINES.turn_ended(failed, None)
        LINES.turn_ended(_ended(known_cost_pico_usd=10**12), None)
    first, second = lines
    assert (first["failure"], first["input_tokens"], first["cost_usd"], first["milliseconds"]) == (
        *("PROVIDER_UNAVAILABLE", None),
        *(None, 0),
    )
    assert "known_cost_usd" not in first and "words" not in str(first)
    assert (second["cost_usd"], second["known_cost_usd"], second["first_output_milliseconds"]) == (None, "1", None)


@pytest.mark.parametrize(
    ("delay", "fallback", "told"),
    [
        (timedelta(seconds=1.5), None, (True, 1500, "")),
        (None, ModelRef("other", "small"), (False, None, "other/small")),
        (None, None, (False, None, "")),
    ],
    ids=["retried", "another model", "given up"],
)
def test_a_failed_model_call_is_one_line(
    delay: timedelta | None, fallback: ModelRef | None, told: tuple[object, ...]
) -> None:
    """Who, where, why, and what follows; without the provider's words."""
    failure = ProviderRateLimited("429: the provider quotes the prompt", {"status": "429", "providerMessage": "prompt"})
    call = ModelCallEnd(
        turn=make_turn(), model=MODEL, attempt=2, failure=failure, retry_delay=delay, fallback=fallback, seconds=0.1234
    )
    with capture_logs() as lines:
        LINES.model_call_ended(call)
    [line] = lines
    assert (line["retried"], line["retry_milliseconds"], line["fallback"]) == told
    facts = ("event", "provider", "model", "address", "reason", "status", "attempt", "milliseconds")
    assert [line[name] for name in facts] == [
        *("model_call_failed", "acme", "big", "models.example:8443"),
        *("PROVIDER_RATE_LIMITED", "429", 2, 123),
    ]
    assert "prompt" not in str(line)


def test_a_model_call_that_succeeds_writes_nothing() -> None:
    """Its turn has a line."""
    with capture_logs() as lines:
        LINES.model_call_ended(ModelCallEnd(turn=make_turn(), model=MODEL, seconds=1))
    assert lines == []


def test_foreign_names_are_cut_and_printable() -> None:
    """A caller may name any model and a token any subject."""
    foreign = ModelRef("acme", "m\n\x1b[31m" + "x" * 1000)
    with capture_logs() as lines:
        LINES.turn_ended(_ended(model=foreign, subject="a\u2028b" + "y" * 1000), None)
        failed = ModelCallEnd(turn=make_turn(), model=foreign, failure=ProviderUnavailable("down"), seconds=1)
        LINES.model_call_ended(failed)
    for line in lines:
        texts = [value for value in line.values() if isinstance(value, str)]
        assert all(text.isprintable() and len(text) <= MAX_NAME_CHARS for text in texts)
    assert lines[0]["model"].startswith("m??[31mxxx")
