"""Requests of a Plue client."""

import json

from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as pb
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.forms import an_object, kind_of, only_keys, refuse, text_of
from turnwire.interop.plue.codes import PlueCode, PlueError, plue_code


def send_request(session_id: str, message_json: str, request_id: str = "") -> pb.AppendMessageRequest:
    """Returns the request that stores a user message without an answer.

    Args:
        session_id: The session.
        message_json: `{"text"?, "attachments"?: [{"path"}]}`, at least one of both. The server reads the files, when it
            stores the message, below the folders that it may read.
        request_id: Makes sending again safe; "" for none.

    Raises:
        PlueError: JSON_PARSE for text that is not JSON, INVALID_PARAM for JSON of another form.
    """
    try:
        value = json.loads(message_json)
    except (ValueError, RecursionError) as error:
        raise PlueError(PlueCode.JSON_PARSE, f"the message is not JSON: {error}") from error
    try:
        parts = _parts(value)
    except InvalidRequest as error:
        raise PlueError(plue_code(error.reason), error.message) from error
    return pb.AppendMessageRequest(
        session_id=session_id, type=content.MESSAGE_TYPE_USER, parts=parts, request_id=request_id
    )


def _parts(value: object) -> list[pb.MessagePart]:
    given = an_object(value, "message")
    only_keys(given, ("text", "attachments"), "message")
    parts = []
    if given.get("text") is not None:
        parts.append(pb.MessagePart(text=pb.TextPart(text=text_of(given, "text", "message"))))
    attachments = given.get("attachments")
    if attachments is not None and not isinstance(attachments, list):
        refuse("message.attachments", f"must be an array, not {kind_of(attachments)}")
    for index, attachment in enumerate(attachments or []):
        place = f"message.attachments[{index}]"
        only_keys(an_object(attachment, place), ("path",), place)
        parts.append(pb.MessagePart(file=pb.FilePart(path=text_of(attachment, "path", place))))
    if not parts:
        refuse("message", "needs text or attachments")
    return parts
