"""The searched text of a part."""

from turnwire.domain.conversation.messages import Content, File, Refusal, Text, ToolResult, ToolUse

MAX_SEARCHED_CHARACTERS = 32_768
"""Maximum characters of one part that are indexed, from its start. Bounds the cost of indexing, however long the output
of a tool is."""


def searched_text(content: Content) -> str:
    """Returns the text of a part that the search finds; "" for none.

    Reasoning has none, because it is not part of the conversation. A tool call has one only once it has its result, so
    that it is indexed once.
    """
    match content:
        case Text(text) | Refusal(text):
            found = text
        case ToolUse() if content.status.settled:
            shares = (content.name, content.input_json, content.output or content.error or "")
            found = "\n".join(share[:MAX_SEARCHED_CHARACTERS] for share in shares if share)
        case ToolResult():
            found = content.output
        case File():
            found = content.filename or content.path
        case _:
            found = ""
    return found[:MAX_SEARCHED_CHARACTERS]
