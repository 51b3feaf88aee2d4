"""Models as messages of the contract."""

from opencode.message import content_pb2 as content
from opencode.model import model_pb2
from turnwire.domain.conversation import messages as m


def model_name(model: m.ModelRef) -> model_pb2.ModelName:
    """Returns the name of a model."""
    return model_pb2.ModelName(provider_id=model.provider_id, model_id=model.model_id)


def model_run(value: m.ModelRun | None) -> content.ModelRun | None:
    """Returns which model was asked."""
    if value is None:
        return None
    return content.ModelRun(
        provider_id=value.provider_id,
        model_requested=value.model_requested,
        model_served=value.model_served,
        response_id=value.response_id,
        is_reported=value.is_reported,
    )
