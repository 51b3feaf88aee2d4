"""The cost of a model's answer."""

import msgspec
import structlog

from turnwire.core.token_estimate import answer_tokens
from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.money import Estimate, Usage
from turnwire.ports.provider import Providers

log = structlog.get_logger()


def with_cost(message: Message, providers: Providers) -> Message:
    """Returns a model's message with the cost of its usage, as far as the price of the model is known."""
    if message.usage is None or message.cost_pico_usd is not None:
        return message
    cost = _cost(message, message.usage, providers)
    return message if cost is None else msgspec.structs.replace(message, cost_pico_usd=cost)


def with_estimate(
    message: Message, providers: Providers, *, was_asked: bool, is_cut: bool, prompt_tokens: int | None = None
) -> Message:
    """Returns a model's message with an estimate if its provider has not reported all that the call used.

    Args:
        message: The message, with its cost; not ended yet.
        providers: Know prices.
        was_asked: Whether a provider got the request; one that failed before its answer did not.
        is_cut: Whether the end of the answer is missing: an earlier report may lack the usage since.
        prompt_tokens: The estimate for the request; None takes that of the message.
    """
    reported = message.usage
    if not (was_asked or message.parts) or (reported is not None and not is_cut):
        return message
    if prompt_tokens is None:
        prompt_tokens = message.sent_context.estimated_tokens if message.sent_context is not None else 0
    usage = _completed(reported or Usage(), prompt_tokens, answer_tokens(message))
    if usage == reported:
        return message
    cost = _cost(message, usage, providers)
    return msgspec.structs.replace(message, estimate=Estimate(usage=usage, cost_pico_usd=cost))


def _completed(reported: Usage, prompt_tokens: int, written_tokens: int) -> Usage:
    """Returns the usage with estimates for what was not reported, or was reported before the answer was complete."""
    missing = written_tokens - (reported.generated_total or 0)
    if reported.prompt_total is None:
        reported = msgspec.structs.replace(reported, input_tokens=prompt_tokens)
    if missing <= 0 and reported.generated_total is not None:
        return reported
    output = (reported.output_tokens or 0) + max(missing, 0)
    return msgspec.structs.replace(reported, output_tokens=output, reported_output_tokens=None)


def _cost(message: Message, usage: Usage, providers: Providers) -> int | None:
    run = message.model_run
    if run is None:
        return None
    model = ModelRef(run.provider_id, run.model_requested)
    try:
        return providers.cost_pico_usd(model, usage)
    except Exception as error:  # an answer must not be lost because its price is unknown
        log.error("price_not_found", provider=model.provider_id, model=model.model_id, exc_info=error)
        return None
