"""Why something ended and what it used, as messages of the contract."""

from opencode.message import content_pb2 as content
from turnwire.api.wire.answers.times import duration
from turnwire.domain.conversation import messages as m
from turnwire.domain.money import Usage

_FINISH_REASONS = {reason: content.FinishReason.Value(f"FINISH_REASON_{reason.name}") for reason in m.FinishReason}


def finish_reason(reason: m.FinishReason | None) -> content.FinishReason.ValueType:
    """Returns the finish reason; unspecified for None."""
    return content.FINISH_REASON_UNSPECIFIED if reason is None else _FINISH_REASONS[reason]


def usage(value: Usage | None) -> content.TokenUsage | None:
    """Returns the token buckets; unknown ones stay absent."""
    if value is None:
        return None
    return content.TokenUsage(
        input_tokens=value.input_tokens,
        cache_read_tokens=value.cache_read_tokens,
        cache_write_tokens=value.cache_write_tokens,
        output_tokens=value.output_tokens,
        reasoning_tokens=value.reasoning_tokens,
        reported_output_tokens=value.reported_output_tokens,
    )


def failure(value: m.Failure | None) -> content.Failure | None:
    """Returns what went wrong."""
    if value is None:
        return None
    return content.Failure(
        reason=value.reason,
        message=value.message,
        metadata=value.metadata,
        retry_after=None if value.retry_after is None else duration(value.retry_after),
    )
