"""What every command tells of results and files in the same words."""

from opencode.file.file_pb2 import FileForm, FileRef
from opencode.message.content_pb2 import ToolResultContent
from turnwire.domain.conversation.messages import outcome_words


def result_outcome(result: ToolResultContent) -> str:
    """Returns how a tool ended, such as "failed, exit code 3"; "" for a success without an exit code."""
    code = result.exit_code if result.HasField("exit_code") else None
    return outcome_words(is_error=result.is_error, exit_code=code)


def unseen_note(file: FileRef) -> str:
    """Returns what to say after the name of a file of which no model gets the content; "" for other files."""
    return " (models see its name alone)" if file.form == FileForm.FILE_FORM_NAME_ONLY else ""
