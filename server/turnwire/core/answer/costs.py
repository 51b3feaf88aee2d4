"""What a model's answer cost."""

import msgspec
import structlog

from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.ports.provider import Providers

log = structlog.get_logger()


def with_cost(message: Message, providers: Providers) -> Message:
    """Returns a model's message with the cost of its usage, as far as the price of the model is known."""
    run = message.model_run
    if run is None or message.usage is None or message.cost_pico_usd is not None:
        return message
    model = ModelRef(run.provider_id, run.model_requested)
    try:
        cost = providers.cost_pico_usd(model, message.usage)
    except Exception as error:  # an answer must not be lost for want of a price
        log.error("price_not_found", provider=model.provider_id, model=model.model_id, exc_info=error)
        return message
    return msgspec.structs.replace(message, cost_pico_usd=cost)
