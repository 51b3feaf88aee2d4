"""The display form of messages for user interfaces: which messages have one, and the role in it."""

from turnwire.domain.conversation.messages import Message, MessageType

_ROLES = {MessageType.USER: "user", MessageType.ASSISTANT: "assistant"}


def is_shown(message: Message) -> bool:
    """Returns whether a message has a display form: a tool result that is shown with its call has none."""
    return message.type is not MessageType.TOOL_RESULT or not message.answers_message_id


def role_of(message_type: MessageType) -> str:
    """Returns the role of the speaker in messages of this type: "user", "assistant" or "system"."""
    return _ROLES.get(message_type, "system")
