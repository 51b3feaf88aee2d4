"""One message, its content, its tool calls and its usage: OpenAI-style JSON and the messages of the contract.

Reading is lenient, because vendors add to their JSON: keys that say nothing here are left out, a developer is a system,
a part and a call may lack their type. With `strict` each of these is refused, so that nothing is lost unnoticed.

JSON that was read and is written again is the same JSON, except for what lenient reading leaves out and for four
spellings: an array with a single text is written as that text, the array of a tool message as its joined text, an
assistant's null or missing content as "", null arguments as "". What Maria has no word for is left out on the way:
reasoning, refusals, files, ids.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from opencode.message import content_pb2 as pb
from opencode.message.content_pb2 import TokenUsage
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.forms import Json, a_count, a_text, an_array, an_object, kind_of, only_keys, refuse, text_at

_ROLES = {
    "system": pb.MESSAGE_TYPE_SYSTEM,
    "user": pb.MESSAGE_TYPE_USER,
    "assistant": pb.MESSAGE_TYPE_ASSISTANT,
    "tool": pb.MESSAGE_TYPE_TOOL_RESULT,
}
_WORDS = {number: word for word, number in _ROLES.items()}
_TEXTS = ("text", "input_text", "output_text")
"""Types of parts that are text, in the APIs of vendors."""


class Reader:
    """Reads JSON of Maria and of vendors. All methods raise WrongJson, which names the place."""

    def __init__(self, *, strict: bool = False) -> None:
        """Takes whether to refuse what reading would leave out."""
        self._strict = strict

    def content(self, value: object, place: str = "content") -> list[str]:
        """Returns the texts of a content: one for a text, all of an array of text parts."""
        if isinstance(value, str):
            return [a_text(value, place)]
        if not isinstance(value, list):
            refuse(place, f"must be text or an array of text parts, not {kind_of(value)}")
        texts = []
        for index, item in enumerate(value):
            at = f"{place}[{index}]"
            part = an_object(item, at)
            self._only(part, ("type", "text"), at)
            type_ = part.get("type") if self._strict else part.get("type", "text")
            if type_ not in (("text",) if self._strict else _TEXTS):
                refuse(f"{at}.type", 'must be "text"')
            texts.append(text_at(part, "text", at))
        return texts

    def tool_call(self, value: object, place: str = "tool_call") -> ToolCallState:
        """Returns a pending call. Arguments are kept word by word, valid JSON or not; null counts as ""."""
        call = an_object(value, place)
        self._only(call, ("id", "type", "function"), place)
        if (call.get("type") if self._strict else call.get("type") or "function") != "function":
            refuse(f"{place}.type", 'must be "function"')
        at = f"{place}.function"
        function = an_object(call.get("function"), at)
        self._only(function, ("name", "arguments"), at)
        arguments = function.get("arguments")
        if isinstance(arguments, dict) and not self._strict:
            arguments = json.dumps(arguments, ensure_ascii=False)
        return ToolCallState(
            call_id=text_at(call, "id", place),
            name=text_at(function, "name", at),
            status="pending",
            input_json="" if arguments is None else a_text(arguments, f"{at}.arguments"),
        )

    def message(self, value: object, place: str = "message") -> pb.SessionMessage:
        """Returns a message with type and parts alone: ids, times and a session come from a server."""
        given = an_object(value, place)
        self._only(given, ("role", "content", "tool_calls", "tool_call_id"), place)
        role = text_at(given, "role", place)
        if role == "developer" and not self._strict:
            role = "system"
        if role not in _ROLES:
            refuse(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
        # a vendor's empty list of calls says nothing
        if role != "assistant" and (
            given.get("tool_calls") if not self._strict else given.get("tool_calls") is not None
        ):
            refuse(f"{place}.tool_calls", "belongs to an assistant message")
        if role != "tool" and given.get("tool_call_id") is not None:
            refuse(f"{place}.tool_call_id", "belongs to a tool message")
        message = pb.SessionMessage(type=_ROLES[role], status=pb.MESSAGE_STATUS_COMPLETE)
        if role == "tool":
            texts = self.content(given.get("content"), f"{place}.content")
            result = pb.ToolResultContent(call_id=text_at(given, "tool_call_id", place), output="".join(texts))
            _add(message, pb.Part(tool_result=result))
        elif role == "assistant":
            self._fill_assistant(message, given, place)
        else:
            _add_texts(message, self.content(given.get("content"), f"{place}.content"))
        return message

    def usage(self, value: object, place: str = "usage") -> TokenUsage | None:
        """Returns the counts: the prompt is divided into cached tokens and others. None for null.

        With `strict`, a missing count, a total that is not the sum and more cached tokens than the prompt has are
        refused; else the parts count, and reasoning is told apart.
        """
        if value is None:
            return None
        given = an_object(value, place)
        self._only(given, ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"), place)
        prompt, completion = (self._count(given, key, place) for key in ("prompt_tokens", "completion_tokens"))
        if self._strict and a_count(given.get("total_tokens"), f"{place}.total_tokens") != prompt + completion:
            refuse(f"{place}.total_tokens", "must be the sum of prompt_tokens and completion_tokens")
        usage = TokenUsage(input_tokens=prompt, output_tokens=completion)
        if given.get("prompt_tokens_details") is not None:
            at = f"{place}.prompt_tokens_details"
            details = an_object(given["prompt_tokens_details"], at)
            self._only(details, ("cached_tokens",), at)
            cached = self._count(details, "cached_tokens", at)
            if cached > prompt:
                refuse(f"{at}.cached_tokens", "must not exceed prompt_tokens")
            usage.input_tokens, usage.cache_read_tokens = prompt - cached, cached
        if given.get("completion_tokens_details") is not None:
            at = f"{place}.completion_tokens_details"
            reasoning = self._count(an_object(given["completion_tokens_details"], at), "reasoning_tokens", at)
            usage.output_tokens, usage.reasoning_tokens = max(0, completion - reasoning), min(reasoning, completion)
        return usage

    def _fill_assistant(self, message: pb.SessionMessage, given: Json, place: str) -> None:
        content = given.get("content")
        if content is None and not self._strict:
            content = given.get("refusal")
        if content is not None and content != "":
            _add_texts(message, self.content(content, f"{place}.content"))
        calls = given.get("tool_calls")
        for index, call in enumerate([] if calls is None else an_array(calls, f"{place}.tool_calls")):
            _add(message, pb.Part(tool_use=self.tool_call(call, f"{place}.tool_calls[{index}]")))

    def _count(self, given: Mapping[str, object], key: str, place: str) -> int:
        value = given.get(key)
        return 0 if value is None and not self._strict else a_count(value, f"{place}.{key}")

    def _only(self, value: Mapping[str, object], known: Collection[str], place: str) -> None:
        if self._strict:
            only_keys(value, known, place)


def content_json(texts: Sequence[str]) -> str | list[Json]:
    """Returns the content for texts: the text itself for one, else an array of text parts."""
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def joined(content: str | list[Json]) -> str:
    """Returns the text of a content as a model reads it: array parts are joined without a separator."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


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


def message_json(message: pb.SessionMessage) -> Json:
    """Returns a message of type system, user, assistant or tool result. `tool_calls` is there when there are calls.

    Raises:
        WrongJson: for a host message, which no model gets, and for types that are newer than this writer.
    """
    role = _WORDS.get(message.type)
    if role is None:
        refuse("type", f"{message.type} has no role")
    if role == "tool":
        results = [part.tool_result for part in message.parts if part.HasField("tool_result")]
        if len(results) != 1:
            refuse("parts", "must be one tool result: messages_json writes a message for each of several")
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


def usage_json(usage: TokenUsage | None) -> Json | None:
    """Returns the counts; None stays null.

    A count that the provider did not report is 0; without a count of cached tokens there are no details. Tokens written
    to a cache are part of the prompt, reasoning is part of the completion.
    """
    if usage is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    completion = usage.output_tokens + usage.reasoning_tokens
    written: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.HasField("cache_read_tokens"):
        written["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    return written


def _add_texts(message: pb.SessionMessage, texts: Sequence[str]) -> None:
    for text in texts:
        _add(message, pb.Part(text=pb.TextContent(text=text), content_bytes=len(text.encode())))


def _add(message: pb.SessionMessage, part: pb.Part) -> None:
    part.index, part.status = len(message.parts), pb.PART_STATUS_COMPLETE
    message.parts.append(part)
