"""How the result of a tool ended, in words for people."""

from opencode.message.content_pb2 import ToolResultContent
from turnwire.domain.conversation.messages import outcome_words


def result_outcome(result: ToolResultContent) -> str:
    """Returns words such as "failed, exit code 3"; "" for a success without an exit code."""
    code = result.exit_code if result.HasField("exit_code") else None
    return outcome_words(is_error=result.is_error, exit_code=code)
