"""One message, its content and its tool calls: OpenAI-style JSON and the contract's `SessionMessage`.

JSON that was read and is written again is the same JSON, except for four spellings of one thing: an array with a single
text is written as that text, the array of a tool message as its joined text, an assistant's null or missing content as
"", null arguments as "". What Maria has no word for is left out on the way there: reasoning, refusals, files, ids.
"""

from collections.abc import Sequence

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from turnwire.interop.forms import Json, a_text, an_object, kind_of, only_keys, refuse
from turnwire.interop.forms import text_of as text_at

_ROLES = {
    "system": pb.MESSAGE_TYPE_SYSTEM,
    "user": pb.MESSAGE_TYPE_USER,
    "assistant": pb.MESSAGE_TYPE_ASSISTANT,
    "tool": pb.MESSAGE_TYPE_TOOL_RESULT,
}
_WORDS = {number: word for word, number in _ROLES.items()}
_KEYS = ("role", "content", "tool_calls", "tool_call_id")


def content_of(value: object, place: str = "content") -> list[str]:
    """Returns the texts of a content: one for a text, all of an array of text parts.

    Raises:
        InvalidRequest: when it is neither, or when a part is not text.
    """
    if isinstance(value, str):
        return [a_text(value, place)]
    if not isinstance(value, list):
        refuse(place, f"must be text or an array of text parts, not {kind_of(value)}")
    texts = []
    for index, item in enumerate(value):
        at = f"{place}[{index}]"
        part = an_object(item, at)
        only_keys(part, ("type", "text"), at)
        if part.get("type") != "text":
            refuse(f"{at}.type", 'must be "text"')
        texts.append(text_at(part, "text", at))
    return texts


def content_json(texts: Sequence[str]) -> str | list[Json]:
    """Returns the content for texts: the text itself for one, else an array of text parts."""
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def text_of(content: str | list[Json]) -> str:
    """Returns the text of a content as a model reads it: array parts are joined without a separator."""
    return "".join(content_of(content))


def tool_call_of(value: object, place: str = "tool_call") -> ToolCallState:
    """Returns a pending call. Arguments are kept word by word, valid JSON or not; null counts as "".

    Raises:
        InvalidRequest: when it is no function call, or lacks id or name.
    """
    call = an_object(value, place)
    only_keys(call, ("id", "type", "function"), place)
    if call.get("type") != "function":
        refuse(f"{place}.type", 'must be "function"')
    function = an_object(call.get("function"), f"{place}.function")
    only_keys(function, ("name", "arguments"), f"{place}.function")
    arguments = function.get("arguments")
    return ToolCallState(
        call_id=text_at(call, "id", place),
        name=text_at(function, "name", f"{place}.function"),
        status="pending",
        input_json="" if arguments is None else a_text(arguments, f"{place}.function.arguments"),
    )


def tool_call_json(call: ToolCallState) -> Json:
    """Returns a call. Its id is the provider's, or this server's when the provider gave none."""
    return {
        "id": call_id(call),
        "type": "function",
        "function": {"name": call.name, "arguments": call.input_json},
    }


def call_id(call: ToolCallState) -> str:
    """Returns the id by which a tool message names a call."""
    return call.call_id if call.HasField("call_id") else call.id


def message_of(value: object, place: str = "message") -> pb.SessionMessage:
    """Returns a message with type and parts alone: ids, times and a session come from a server.

    Raises:
        InvalidRequest: for an unknown role, `tool_calls` of another role than assistant, `tool_call_id` of another role
            than tool, and content of another form. Names the place.
    """
    given = an_object(value, place)
    only_keys(given, _KEYS, place)
    role = text_at(given, "role", place)
    if role not in _ROLES:
        refuse(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    if role != "assistant" and given.get("tool_calls") is not None:
        refuse(f"{place}.tool_calls", "belongs to an assistant message")
    if role != "tool" and given.get("tool_call_id") is not None:
        refuse(f"{place}.tool_call_id", "belongs to a tool message")
    message = pb.SessionMessage(type=_ROLES[role], status=pb.MESSAGE_STATUS_COMPLETE)
    if role == "tool":
        texts = content_of(given.get("content"), f"{place}.content")
        result = pb.ToolResultContent(call_id=text_at(given, "tool_call_id", place), output="".join(texts))
        _add(message, pb.Part(tool_result=result))
    elif role == "assistant":
        _fill_assistant(message, given, place)
    else:
        _add_texts(message, content_of(given.get("content"), f"{place}.content"))
    return message


def message_json(message: pb.SessionMessage) -> Json:
    """Returns a message of type system, user, assistant or tool result. `tool_calls` is there when there are calls.

    Raises:
        InvalidRequest: for a host message, which no model gets, and for types that are newer than this reader.
    """
    role = _WORDS.get(message.type)
    if role is None:
        refuse("type", f"{message.type} has no role")
    if role == "tool":
        results = [part.tool_result for part in message.parts if part.HasField("tool_result")]
        if len(results) != 1:
            refuse("parts", "must be one tool result: conversation_json writes a message for each of several")
        return tool_json(results[0].call_id or results[0].tool_call_id, results[0].output)
    texts = [part.text.text for part in message.parts if part.HasField("text")]
    if role != "assistant":
        return {"role": role, "content": content_json(texts)}
    written: Json = {"role": role, "content": content_json(texts) if texts else ""}
    if calls := [part.tool_use for part in message.parts if part.HasField("tool_use")]:
        written["tool_calls"] = [tool_call_json(call) for call in calls]
    return written


def tool_json(tool_call_id: str, output: str) -> Json:
    """Returns the tool message with the result of a call."""
    return {"role": "tool", "content": output, "tool_call_id": tool_call_id}


def _fill_assistant(message: pb.SessionMessage, given: Json, place: str) -> None:
    content = given.get("content")
    if content is not None and content != "":
        _add_texts(message, content_of(content, f"{place}.content"))
    calls = given.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        refuse(f"{place}.tool_calls", f"must be an array, not {kind_of(calls)}")
    for index, call in enumerate(calls):
        _add(message, pb.Part(tool_use=tool_call_of(call, f"{place}.tool_calls[{index}]")))


def _add_texts(message: pb.SessionMessage, texts: Sequence[str]) -> None:
    for text in texts:
        _add(message, pb.Part(text=pb.TextContent(text=text), content_bytes=len(text.encode())))


def _add(message: pb.SessionMessage, part: pb.Part) -> None:
    part.index, part.status = len(message.parts), pb.PART_STATUS_COMPLETE
    message.parts.append(part)
