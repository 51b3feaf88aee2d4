"""Parts of a client's state of one session that are compared with what is stored."""

from collections.abc import Iterable

from opencode.message.content_pb2 import MESSAGE_STATUS_STREAMING, SessionMessage


def compared(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without what is stored without an event."""
    copies = []
    for message in messages:
        copy = SessionMessage()
        copy.CopyFrom(message)
        copy.ClearField("update_time")
        if copy.status == MESSAGE_STATUS_STREAMING:
            copy.ClearField("usage")
            copy.ClearField("model_run")
        copies.append(copy)
    return copies
