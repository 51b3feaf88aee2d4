"""What is told of calls and servers that failed."""

from turnwire.ports.tools import ToolOutcome


def failed(why: str) -> ToolOutcome:
    """Returns the outcome of a call that failed."""
    return ToolOutcome(output=why, is_error=True)


def explained(error: BaseException) -> str:
    """Returns a sentence for an exception; unwraps the groups that the SDK wraps errors in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(getattr(error, "message", "") or error)
    return (text or type(error).__name__)[:500]
