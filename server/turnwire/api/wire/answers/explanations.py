"""Requests to models, explained, as messages of the contract."""

from opencode.message import message_pb2 as message_pb
from turnwire.api.wire.answers.messages import sent_context
from turnwire.api.wire.answers.models import model_name
from turnwire.core.use_cases.explanation import ContextExplanation
from turnwire.domain.repairs import RepairAction

REPAIR_ACTIONS = {action: message_pb.RepairAction.Value(f"REPAIR_ACTION_{action.name}") for action in RepairAction}


def explanation(value: ContextExplanation) -> message_pb.ExplainContextResponse:
    """Returns a request and how it came to be."""
    return message_pb.ExplainContextResponse(
        model=model_name(value.model),
        api=value.api,
        request_json=value.request_json,
        estimated_tokens=value.estimated_tokens,
        context_window_tokens=value.context_window_tokens,
        would_compact=value.would_compact,
        repairs=[
            message_pb.ContextRepair(
                message_id=repair.message_id,
                part_index=repair.part_index,
                action=REPAIR_ACTIONS[repair.action],
                reason=repair.reason,
                explanation=repair.explanation,
            )
            for repair in value.repairs
        ],
        sent_context=sent_context(value.sent_context),
    )
