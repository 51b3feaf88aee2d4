"""Requests of a Maria client, and what an abort did."""

from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as pb
from turnwire.interop.forms import Json, refuse
from turnwire.interop.maria.messages import message_of


def send_request(session_id: str, message: object, request_id: str = "") -> pb.SendMessageRequest:
    """Returns the request that queues a user message and lets the model answer it.

    Raises:
        InvalidRequest: when it is no user message.
    """
    found = message_of(message)
    if found.type != content.MESSAGE_TYPE_USER:
        refuse("message.role", 'must be "user": append_request stores the others')
    return pb.SendMessageRequest(session_id=session_id, parts=_parts(found), request_id=request_id)


def append_request(session_id: str, message: object, request_id: str = "") -> pb.AppendMessageRequest:
    """Returns the request that stores a system, user or tool message without an answer.

    Raises:
        InvalidRequest: for an assistant message, which only a model or an import writes.
    """
    found = message_of(message)
    if found.type == content.MESSAGE_TYPE_ASSISTANT:
        refuse("message.role", "must not be assistant: an import takes whole conversations")
    return pb.AppendMessageRequest(session_id=session_id, type=found.type, parts=_parts(found), request_id=request_id)


def cancelled(answer: pb.AbortSessionResponse) -> Json:
    """Returns what a cancel did: `{"dropped": [id, …]}`, the messages that waited, next first."""
    return {"dropped": list(answer.dropped_message_ids)}


def _parts(message: content.SessionMessage) -> list[pb.MessagePart]:
    return [
        pb.MessagePart(tool_result=part.tool_result)
        if part.HasField("tool_result")
        else pb.MessagePart(text=pb.TextPart(text=part.text.text))
        for part in message.parts
    ]
