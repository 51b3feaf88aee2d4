"""Checked requests of the API: every field that this server does not have is refused by its name."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from opencode.message.message_pb2 import FilePart, MessagePart, TextPart
from opencode.model.model_pb2 import ModelName
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import (
    RESPONSE_FORMAT_KIND_JSON,
    RESPONSE_FORMAT_KIND_JSON_SCHEMA,
    RESPONSE_FORMAT_KIND_TEXT,
    TOOL_CHOICE_MODE_AUTO,
    TOOL_CHOICE_MODE_NONE,
    TOOL_CHOICE_MODE_REQUIRED,
    GenerationOptions,
    TurnSettings,
)
from turnwire_adapters.forms import WrongJson, only_whole_texts
from turnwire_adapters.http import json_object
from turnwire_adapters.responses.errors import ApiError, unsupported

IGNORED = ("stream_options", "include", "prompt_cache_retention")
"""Fields that change nothing here: taken, because clients send them unasked."""

TAKEN = (
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"),
    *("temperature", "top_p", "reasoning", "text", "metadata", "truncation", "max_tool_calls", "user"),
    *("safety_identifier", "service_tier", "prompt_cache_key", "store", "stream", "background"),
    *("previous_response_id", "conversation", "top_logprobs"),
)
STRICT = "strict_tools"
"""Under which a request's facts have the names of the functions whose schema was said to be strict."""
SERVERS = "mcp_servers"
"""Under which a request's facts have the labels of the MCP servers that it names."""
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
"""Pairs of metadata, and the characters of each, as OpenAI has it."""
MAX_NAME = 1024
"""Characters of a sender's name, as the server has it, and of a key."""

_FORMATS = {
    "text": RESPONSE_FORMAT_KIND_TEXT,
    "json_object": RESPONSE_FORMAT_KIND_JSON,
    "json_schema": RESPONSE_FORMAT_KIND_JSON_SCHEMA,
}
_SUMMARIES = ("auto", "concise", "detailed")
_TOOL_CHOICES = {
    "auto": TOOL_CHOICE_MODE_AUTO,
    "none": TOOL_CHOICE_MODE_NONE,
    "required": TOOL_CHOICE_MODE_REQUIRED,
}
_PART_FIELDS = {
    "input_text": ("text",),
    "output_text": ("text", "annotations", "logprobs"),
    "text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url", "detail", "file_id"),
    "input_file": ("file_data", "filename", "file_id", "file_url"),
}
"""Fields of a part of a message by its type. Those of an answer are taken when it comes back, and change nothing."""
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """A message that somebody said."""

    role: str
    """`user`, `system` or `assistant`; a developer is `system`."""
    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """A call that a model made."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Result:
    """Output of a tool for one call."""

    call_id: str
    output: str
    param: str


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's decision about a call."""

    request_id: str
    approve: bool
    reason: str
    param: str


@dataclass(frozen=True, slots=True)
class Reference:
    """An item that this server has."""

    item_id: str
    param: str


Input = Said | Called | Result | Approval | Reference


@dataclass(slots=True)
class CreateRequest:
    """A request for a response."""

    input: list[Input]
    settings: TurnSettings
    facts: dict[str, Any]
    """Fields that the response object repeats and Turnwire has no place for."""
    stream: bool = False
    background: bool = False
    store: bool = True
    previous_response_id: str = ""
    conversation_id: str = ""
    sender: str = ""
    keeps_all: bool = False
    """Truncation is disabled: older messages are not summarised."""
    server_labels: list[str] = field(default_factory=list)
    """MCP servers of Turnwire that the request names as tools."""


def read_create(body: Mapping[str, Any]) -> CreateRequest:
    """Returns a request for a response.

    Raises:
        ApiError: a field is wrong, or is one that this server does not have.
    """
    for name, value in body.items():
        if name not in TAKEN and name not in IGNORED and value is not None:
            raise unsupported(name, "is not supported by this server.")
    if body.get("previous_response_id") and body.get("conversation"):
        raise wrong("previous_response_id", "cannot be used together with 'conversation'")
    _strings(body, "include")
    _object(body, "stream_options")
    _word(body, "service_tier", ("auto", "default", "flex", "scale", "priority"))
    background, store = _bool(body, "background", False), _bool(body, "store", True)
    if background and not store:
        raise wrong("background", "needs store to be true")
    if _bool(body, "parallel_tool_calls", True) is False:
        raise unsupported("parallel_tool_calls", "can only be true.")
    if body.get("top_logprobs"):
        raise unsupported("top_logprobs", "can only be 0.")
    conversation = body.get("conversation")
    if isinstance(body.get("conversation"), Mapping):
        conversation = _required(body["conversation"], "id", "conversation")
    truncation = _word(body, "truncation", ("auto", "disabled"))
    settings, facts = _settings(body)
    names = {name: _text(body, name) for name in ("safety_identifier", "user", "prompt_cache_key")}
    for name, text in names.items():
        if len(text) > MAX_NAME:
            raise wrong(name, f"has more than {MAX_NAME} characters")
    return CreateRequest(
        input=read_input(body.get("input"), "input"),
        settings=settings,
        facts=facts
        | {name: text for name, text in names.items() if text}
        | {name: True for name in ("background", "conversation") if body.get(name)}
        | ({"service_tier": "default"} if body.get("service_tier") else {})
        | ({"truncation": truncation} if truncation else {})
        | ({"previous_response_id": body["previous_response_id"]} if body.get("previous_response_id") else {})
        | ({} if store else {"store": False})
        | ({"metadata": metadata} if (metadata := read_metadata(body.get("metadata"))) else {}),
        stream=_bool(body, "stream", False),
        background=background,
        store=store,
        previous_response_id=_text(body, "previous_response_id"),
        conversation_id=_text({"conversation": conversation}, "conversation"),
        sender=names["safety_identifier"] or names["user"],
        keeps_all=truncation == "disabled",
        server_labels=facts.get(SERVERS, []),
    )


async def json_of(request: Request) -> dict[str, Any]:
    """Returns the JSON object in a request's body; {} for an empty body.

    Raises:
        ApiError: a text in it is none: it has half of a surrogate pair.
        HTTPException: 400, it is not JSON or no object; 413, it is too large.
    """
    body = await json_object(request)
    try:
        only_whole_texts(body)
    except WrongJson as error:
        raise wrong(error.place or "body", error.description) from None
    return body


def number_in(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Returns a whole number of a request's query. Raises ApiError."""
    given = request.query_params.get(name, str(default))
    if not re.fullmatch(r"-?[0-9]{1,18}", given) or not least <= int(given) <= most:
        raise wrong(name, f"must be a whole number from {least} to {most}")
    return int(given)


def read_input(given: Any, param: str) -> list[Input]:
    """Returns the items of an input: a text is what a user said. Raises ApiError."""
    if given is None:
        return []
    if isinstance(given, str):
        return [Said("user", (_text_part(given, param),))]
    if not isinstance(given, list):
        raise wrong(param, "must be a string or an array of items")
    read: list[Input] = []
    for at, item in enumerate(given):
        place = f"{param}[{at}]"
        if not isinstance(item, Mapping):
            raise wrong(place, "must be an object")
        if (one := _item(item, place)) is not None:
            read.append(one)
    return read


def read_metadata(given: Any) -> dict[str, str]:
    """Returns the pairs of metadata. Raises ApiError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise wrong("metadata", "must be an object whose values are strings")
    if len(given) > MAX_METADATA:
        raise wrong("metadata", f"has more than {MAX_METADATA} pairs")
    for name, value in given.items():
        if len(name) > MAX_METADATA_KEY:
            raise wrong("metadata", f"has a key of more than {MAX_METADATA_KEY} characters")
        if len(value) > MAX_METADATA_VALUE:
            raise wrong(f"metadata.{name}", f"has more than {MAX_METADATA_VALUE} characters")
    return dict(given)


def only_fields(given: Mapping[str, Any], known: Sequence[str], place: str = "") -> None:
    """Raises ApiError for a field that would be lost. One that is null or false asks for nothing."""
    for name, value in given.items():
        if name not in known and value is not None and value is not False:
            raise unsupported(f"{place}.{name}" if place else name, "is not supported by this server.")


def wrong(param: str, why: str) -> ApiError:
    """Returns the error for a field with a value that cannot be."""
    return ApiError(f"Invalid '{param}': it {why}.", param=param, code="invalid_value")


def _settings(body: Mapping[str, Any]) -> tuple[TurnSettings, dict[str, Any]]:
    options = GenerationOptions()
    facts: dict[str, Any] = {}
    for name, cast in (("temperature", float), ("top_p", float), ("max_output_tokens", int)):
        if (value := body.get(name)) is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float) if cast is float else int):
                raise wrong(name, "must be a number" if cast is float else "must be a whole number")
            if not 0 <= value < 2**31:
                raise wrong(name, "must be from 0 to 2147483647")
            setattr(options, name, cast(value))
    if (value := body.get("max_tool_calls")) is not None:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise wrong("max_tool_calls", "must be a whole number from 1")
        options.max_steps, facts["max_tool_calls"] = value, value
    reasoning = _object(body, "reasoning")
    for name in reasoning:
        if name not in ("effort", "summary", "generate_summary"):
            raise unsupported(f"reasoning.{name}", "is not supported by this server.")
    options.reasoning_effort = _text(reasoning, "effort", "reasoning.effort")
    _word(reasoning, "generate_summary", _SUMMARIES, "reasoning.generate_summary")
    if summary := _word(reasoning, "summary", _SUMMARIES, "reasoning.summary"):
        facts["reasoning_summary"] = summary
    _text_format(options, body)
    _tool_choice(options, body)
    tools, servers, strict = _tools(body.get("tools"))
    facts |= {name: names for name, names in ((SERVERS, servers), (STRICT, strict)) if names}
    settings = TurnSettings(tools=tools, options=options)
    if (instructions := body.get("instructions")) is not None:
        settings.system = _text({"instructions": instructions}, "instructions")
    if model := _text(body, "model"):
        settings.model.CopyFrom(model_name(model))
    return settings, facts


def model_name(model: str) -> ModelName:
    """Returns a model by its name `provider/model`. Raises ApiError."""
    provider, slash, name = model.partition("/")
    if not slash:
        message = f"The model '{model}' does not exist: models are named provider/model, as GET /v1/models lists them."
        raise ApiError(message, param="model", code="model_not_found")
    return ModelName(provider_id=provider, model_id=name)


def _text_format(options: GenerationOptions, body: Mapping[str, Any]) -> None:
    text = _object(body, "text")
    for name in text:
        if name not in ("format", "verbosity"):
            raise unsupported(f"text.{name}", "is not supported by this server.")
    _word(text, "verbosity", ("low", "medium", "high"), "text.verbosity")
    form = _object(text, "format", "text.format")
    only_fields(form, ("type", "name", "schema", "description", "strict"), "text.format")
    kind = form.get("type", "text")
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise unsupported("text.format", f"can be text, json_object or json_schema, not {kind!r}.")
    if kind == "text":
        return
    asked = options.response_format
    asked.kind = _FORMATS[kind]
    if kind != "json_schema":
        return
    if not isinstance(schema := form.get("schema"), Mapping):
        raise wrong("text.format.schema", "must be a JSON Schema")
    asked.schema_json = json.dumps(schema, ensure_ascii=False)
    asked.name = _text(form, "name", "text.format.name")
    asked.description = _text(form, "description", "text.format.description")
    asked.strict = _bool(form, "strict", False, "text.format.strict")


def _tool_choice(options: GenerationOptions, body: Mapping[str, Any]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str) and choice in _TOOL_CHOICES:
        options.tool_choice.mode = _TOOL_CHOICES[choice]
    elif isinstance(choice, Mapping) and choice.get("type") == "function":
        options.tool_choice.tool_name = _required(choice, "name", "tool_choice")
    else:
        raise unsupported("tool_choice", "can only be auto, none, required, or a function.")


def _tools(given: Any) -> tuple[list[ToolDefinition], list[str], list[str]]:
    """Returns the tools of the client, the labels of the MCP servers that are named, and the names of strict tools."""
    if given is None:
        return [], [], []
    if not isinstance(given, list):
        raise wrong("tools", "must be an array")
    tools: list[ToolDefinition] = []
    labels: list[str] = []
    strict: list[str] = []
    for at, tool in enumerate(given):
        place = f"tools[{at}]"
        if not isinstance(tool, Mapping):
            raise wrong(place, "must be an object")
        if tool.get("type") == "mcp":
            labels.append(_server_label(tool, place))
            continue
        if tool.get("type") != "function":
            raise unsupported(f"{place}.type", f"can only be function or mcp, not {tool.get('type')!r}.")
        only_fields(tool, ("type", "name", "description", "parameters", "strict"), place)
        if _bool(tool, "strict", False, f"{place}.strict"):
            strict.append(_text(tool, "name", f"{place}.name"))
        schema = tool.get("parameters")
        tools.append(
            ToolDefinition(
                name=_text(tool, "name", f"{place}.name"),
                description=_text(tool, "description", f"{place}.description"),
                input_schema_json="" if schema is None else json.dumps(schema, ensure_ascii=False),
            )
        )
    return tools, labels, strict


def _server_label(tool: Mapping[str, Any], place: str) -> str:
    """Returns the label of an MCP server of Turnwire. Its address and its rules are the configuration's."""
    for name, value in tool.items():
        if name not in ("type", "server_label", "server_description") and value is not None:
            raise unsupported(f"{place}.{name}", "is for Turnwire's configuration to say, which has the MCP servers.")
    return _required(tool, "server_label", place)


def _item(item: Mapping[str, Any], place: str) -> Input | None:
    kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
    if kind == "message":
        return _said(item, place)
    if kind == "function_call":
        call_id = _required(item, "call_id", place)
        return Called(call_id, _required(item, "name", place), _text(item, "arguments", f"{place}.arguments"))
    if kind == "function_call_output":
        return Result(_required(item, "call_id", place), _output(item.get("output"), f"{place}.output"), place)
    if kind == "mcp_approval_response":
        request_id = _required(item, "approval_request_id", place)
        approve = _bool(item, "approve", None, f"{place}.approve")
        return Approval(request_id, bool(approve), _text(item, "reason", f"{place}.reason"), place)
    if kind == "item_reference":
        return Reference(_required(item, "id", place), place)
    if kind in ("reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request"):
        return None  # what this server made, and makes again: a model gets reasoning back from its own provider alone
    raise unsupported(f"{place}.type", f"{kind!r} is not supported by this server.")


def _said(item: Mapping[str, Any], place: str) -> Said:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise wrong(f"{place}.role", "must be user, assistant, system or developer")
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if not isinstance(content, list):
        raise wrong(f"{place}.content", "must be a string or an array")
    parts = [_content(part, f"{place}.content[{at}]") for at, part in enumerate(content)]
    return Said("system" if role == "developer" else str(role), tuple(parts))


def _content(part: Any, place: str) -> MessagePart:
    if not isinstance(part, Mapping):
        raise wrong(place, "must be an object")
    kind = part.get("type")
    if isinstance(kind, str) and kind in _PART_FIELDS:
        only_fields(part, ("type", *_PART_FIELDS[kind]), place)
    if kind in ("input_text", "output_text", "text"):
        return _text_part(part.get("text"), f"{place}.text")
    if kind == "refusal":
        refusal = MessagePart()
        refusal.refusal.text = _text(part, "refusal", f"{place}.refusal")
        return refusal
    if kind == "input_image" and part.get("image_url"):
        return _file(part["image_url"], "", f"{place}.image_url")
    if kind == "input_file" and part.get("file_data"):
        return _file(part["file_data"], _text(part, "filename", f"{place}.filename"), f"{place}.file_data")
    for name in ("file_id", "file_url"):
        if part.get(name):
            raise unsupported(f"{place}.{name}", "is not supported by this server: send the bytes as a data URL.")
    raise unsupported(f"{place}.type", f"{kind!r} is not supported by this server.")


def _file(url: Any, filename: str, place: str) -> MessagePart:
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise unsupported(place, "can only be a data URL in base64.")
    try:
        data = base64.b64decode(found[2], validate=True)
    except (ValueError, binascii.Error):
        raise wrong(place, "is no base64") from None
    return MessagePart(file=FilePart(mime=found[1], data=data, **({"filename": filename} if filename else {})))


def _output(given: Any, place: str) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        texts = [part.get("text") for part in given if isinstance(part, Mapping) and part.get("type") == "input_text"]
        if len(texts) == len(given) and all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
        raise unsupported(place, "can only have texts.")
    raise wrong(place, "must be a string or an array")


def _text_part(text: Any, place: str) -> MessagePart:
    if not isinstance(text, str):
        raise wrong(place, "must be a string")
    return MessagePart(text=TextPart(text=text))


def _required(item: Mapping[str, Any], name: str, place: str) -> str:
    if not (text := _text(item, name, f"{place}.{name}")):
        raise ApiError(
            f"Missing required parameter: '{place}.{name}'.", param=f"{place}.{name}", code="missing_required_parameter"
        )
    return text


def _text(given: Mapping[str, Any], name: str, param: str = "") -> str:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(param or name, "must be a string")
    return value or ""


def _bool(given: Mapping[str, Any], name: str, default: bool | None, param: str = "") -> bool:
    value = given.get(name, default)
    if value is None:
        value = default
    if not isinstance(value, bool):
        raise wrong(param or name, "must be true or false")
    return value


def _object(given: Mapping[str, Any], name: str, param: str = "") -> Mapping[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(param or name, "must be an object")
    return value


def _strings(given: Mapping[str, Any], name: str) -> None:
    value = given.get(name)
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        raise wrong(name, "must be an array of strings")


def _word(given: Mapping[str, Any], name: str, words: Sequence[str], param: str = "") -> str:
    value = _text(given, name, param)
    if value and value not in words:
        raise wrong(param or name, f"must be one of {', '.join(words)}")
    return value
