"""OpenCode's objects, made of Turnwire's: sessions, messages, parts, providers, agents, requests to a person.

Free of input and output: what an object needs besides its own message is an argument.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from opencode.agent.agent_pb2 import AgentInfo
from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_CONTENT_FILTER,
    FINISH_REASON_CONTEXT_FULL,
    FINISH_REASON_INTERRUPTED,
    FINISH_REASON_LENGTH,
    FINISH_REASON_REFUSAL,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_USE,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_USER,
    PART_STATUS_STREAMING,
    Failure,
    Part,
    SessionMessage,
    TokenUsage,
)
from opencode.model.model_pb2 import ModelInfo
from opencode.provider.provider_pb2 import ProviderInfo, ProviderList
from opencode.session.session_pb2 import SessionInfo
from opencode.tool.tool_pb2 import PermissionRequest, ToolCallState
from turnwire_adapters.opencode.ids import is_chosen, shown

Json = dict[str, Any]

VERSION = "1.18.33"
"""Version of OpenCode whose clients are tested."""

PROJECT = "global"
"""The id of the only project; OpenCode calls so what belongs to no repository."""

OWN = "opencode"
"""The key of `metadata_json` under which the adapter keeps what OpenCode has and Turnwire has not."""

DIRECTORY_LABEL, PARENT_LABEL = "opencode/directory", "opencode/parent"
"""Labels of a session: the directory in which its client runs, and the session that its client named as parent."""

_PICO = 1_000_000_000_000
_FINISH = {
    FINISH_REASON_STOP: "stop",
    FINISH_REASON_LENGTH: "length",
    FINISH_REASON_TOOL_USE: "tool-calls",
    FINISH_REASON_CONTENT_FILTER: "content-filter",
    FINISH_REASON_REFUSAL: "content-filter",
    FINISH_REASON_CONTEXT_FULL: "length",
}
_AUTH = "PROVIDER_CREDENTIALS_REJECTED"
_API = {
    "PROVIDER_RATE_LIMITED": True,
    "PROVIDER_UNAVAILABLE": True,
    "PROVIDER_STREAM_CUT": True,
    "PROVIDER_STREAM_FAILED": True,
    "PROVIDER_REQUEST_REFUSED": False,
}
"""Reasons that are errors of the model's API, and whether another try can help."""


@dataclass(frozen=True, slots=True)
class Question:
    """The parts of a user message that OpenCode shows with its answer."""

    message_id: str
    """As clients know it."""
    agent: str = ""
    """"" when the client named none."""
    model: Mapping[str, str] = field(default_factory=dict)
    """providerID and modelID, and variant if there was one; empty when the client named none."""
    parts: tuple[Json, ...] = ()
    """Id and marks that the client gave to each part, in order."""


def question_of(message: SessionMessage) -> Question:
    """Returns what is known of a user message besides its content."""
    own = parsed(message.metadata_json).get(OWN)
    own = own if isinstance(own, dict) else {}  # another client may have left anything under the key
    agent, model, parts = (own.get(name) for name in ("agent", "model", "parts"))
    return Question(
        message_id_of(message),
        agent if isinstance(agent, str) else "",
        model if isinstance(model, dict) and all(isinstance(one, str) for one in model.values()) else {},
        tuple(one if isinstance(one, dict) else {} for one in parts) if isinstance(parts, list) else (),
    )


def message_id_of(message: SessionMessage) -> str:
    """Returns the id by which clients know a message: of a user message the one that its client chose, if it did."""
    chosen = message.type == MESSAGE_TYPE_USER and is_chosen(message.request_id)
    return message.request_id if chosen else shown(message.message_id)


def session_json(
    session: SessionInfo,
    *,
    directory: str = "",
    usage: TokenUsage | None = None,
    cost_pico_usd: int | None = None,
    revert: str = "",
) -> Json:
    """Returns a Session.

    Args:
        session: The session.
        directory: What a session without a directory shows; "" for the root.
        usage: What it has used; None when it is not known, as in lists.
        cost_pico_usd: What that cost; None when it is not known.
        revert: The id, as clients know it, of the first message that is taken back; "" for none.
    """
    settings = session.settings
    parent = settings.labels.get(PARENT_LABEL, "")
    facts = parsed(settings.metadata_json)
    model = settings.model if settings.HasField("model") else None
    archived = {"archived": milliseconds(session.archive_time)} if session.HasField("archive_time") else {}
    return {
        "id": session.id,
        "slug": session.id,
        "projectID": PROJECT,
        "directory": directory_of(session) or directory or "/",
        "title": session.title or "New session",
        "version": VERSION,
        "time": {"created": session.time.created, "updated": session.time.updated, **archived},
        **({"parentID": parent} if parent else {}),
        **({"cost": (cost_pico_usd or 0) / _PICO, "tokens": tokens_json(usage)} if usage is not None else {}),
        **({"agent": settings.agent} if settings.agent else {}),
        **({"model": {"id": model.model_id, "providerID": model.provider_id}} if model else {}),
        **({"metadata": facts} if facts else {}),
        **({"revert": {"messageID": revert}} if revert else {}),
    }


def directory_of(session: SessionInfo) -> str:
    """Returns where a session's client runs; "" when nobody said so."""
    return session.settings.labels.get(DIRECTORY_LABEL, "") or session.directory


def user_json(message: SessionMessage, question: Question, session: SessionInfo, model: Mapping[str, str]) -> Json:
    """Returns a UserMessage. `model` is shown when the client named none."""
    return {
        "id": question.message_id,
        "sessionID": message.session_id,
        "role": "user",
        "time": {"created": milliseconds(message.create_time)},
        "agent": question.agent or session.settings.agent or "default",
        "model": dict(question.model or model),
    }


def assistant_json(message: SessionMessage, question: Question, session: SessionInfo) -> Json:
    """Returns an AssistantMessage."""
    run, agent = message.model_run, question.agent or session.settings.agent or "default"
    ended = message.status != MESSAGE_STATUS_STREAMING
    created, completed = milliseconds(message.create_time), milliseconds(message.update_time)
    error = _message_error(message)
    finish = _FINISH.get(message.finish_reason, "error" if error else "other")
    return {
        "id": shown(message.message_id),
        "sessionID": message.session_id,
        "role": "assistant",
        "time": {"created": created, **({"completed": completed} if ended else {})},
        "parentID": question.message_id,
        "modelID": run.model_requested,
        "providerID": run.provider_id,
        "mode": agent,
        "agent": agent,
        "path": {"cwd": directory_of(session) or "/", "root": "/"},
        "cost": message.cost_pico_usd / _PICO,
        "tokens": tokens_json(message.usage),
        **({"finish": finish} if ended else {}),
        **({"error": error} if error else {}),
    }


def part_json(
    part: Part, message: SessionMessage, message_id: str, given: Json | None = None, url: str = ""
) -> Json | None:
    """Returns a Part; None for content that OpenCode has no part for.

    Args:
        part: The part.
        message: The message that has it.
        message_id: Its id as clients know it.
        given: The id and marks that a client gave the part.
        url: Of a file: where its bytes are.
    """
    head = {"id": shown(part.part_id), "sessionID": message.session_id, "messageID": message_id, **(given or {})}
    start = milliseconds(message.create_time)
    end = {"end": milliseconds(message.update_time)} if part.status != PART_STATUS_STREAMING else {}
    time = {"time": {"start": start, **end}}
    match part.WhichOneof("content"):
        case "text":  # `run` prints each text that has an end
            is_answer = message.type == MESSAGE_TYPE_ASSISTANT
            return {**head, "type": "text", "text": part.text.text, **(time if is_answer else {})}
        case "refusal":
            return {**head, "type": "text", "text": part.refusal.text, **time}
        case "reasoning":
            return {**head, "type": "reasoning", "text": part.reasoning.text, **time}
        case "file":
            name = {"filename": part.file.filename} if part.file.filename else {}
            return {**head, "type": "file", "mime": part.file.mime, **name, "url": url}
        case "tool_use":
            call = part.tool_use
            state = tool_state(call, start)
            return {**head, "type": "tool", "callID": call.call_id or part.part_id, "tool": call.name, "state": state}
    return None


def tool_state(call: ToolCallState, start: int) -> Json:
    """Returns a ToolState. `start` counts when the call does not know when it began (milliseconds)."""
    given, facts = parsed(call.input_json), parsed(call.metadata_json)
    if not given and call.input_json.strip() not in ("", "{}"):
        given = {"input": call.input_json}
    began = call.started_at if call.HasField("started_at") else start
    time = {"start": began, "end": call.finished_at if call.HasField("finished_at") else began}
    if call.status == "success":
        return {
            "status": "completed",
            "input": given,
            "output": call.output,
            "title": str(facts.get("title") or ""),
            "metadata": facts,
            "time": time,
        }
    if call.status in ("error", "cancelled"):
        error = call.error or call.output or call.status
        return {"status": "error", "input": given, "error": error, "metadata": facts, "time": time}
    if call.status == "running" or call.HasField("started_at"):
        return {"status": "running", "input": given, "metadata": facts, "time": {"start": began}}
    return {"status": "pending", "input": given, "raw": call.input_json}


def tokens_json(usage: TokenUsage) -> Json:
    """Returns tokens; what is not known counts as 0, for OpenCode has no other way to say so."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "cache": {"read": usage.cache_read_tokens, "write": usage.cache_write_tokens},
    }


def failure_json(failure: Failure, provider_id: str) -> Json:
    """Returns why an answer failed, as an error of OpenCode."""
    if failure.reason == _AUTH:
        return {"name": "ProviderAuthError", "data": {"providerID": provider_id, "message": failure.message}}
    if failure.reason == "PROVIDER_CONTEXT_FULL":
        return {"name": "ContextOverflowError", "data": {"message": failure.message}}
    if failure.reason in _API:
        status = failure.metadata.get("status", "")
        code = {"statusCode": int(status)} if status.isdecimal() else {}
        data = {"message": failure.message, "isRetryable": _API[failure.reason], **code}
        return {"name": "APIError", "data": data}
    return {"name": "UnknownError", "data": {"message": failure.message or failure.reason}}


def aborted_json() -> Json:
    """Returns the error of an answer that somebody ended."""
    return {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}


def _message_error(message: SessionMessage) -> Json | None:
    if message.finish_reason == FINISH_REASON_ABORTED:
        return aborted_json()
    if message.HasField("failure"):
        return failure_json(message.failure, message.model_run.provider_id)
    if message.status == MESSAGE_STATUS_INTERRUPTED or message.finish_reason == FINISH_REASON_INTERRUPTED:
        return aborted_json()
    if message.finish_reason == FINISH_REASON_LENGTH:
        return {"name": "MessageOutputLengthError", "data": {}}
    return None


def permission_json(request: PermissionRequest) -> Json:
    """Returns a PermissionRequest."""
    call = {"messageID": shown(request.message_id), "callID": request.call_id or request.tool_call_id}
    return {
        "id": request.id,
        "sessionID": request.session_id,
        "permission": request.type,
        "patterns": list(request.pattern),
        "metadata": {"title": request.title, **parsed(request.metadata_json)},
        "always": list(request.pattern),
        **({"tool": call} if request.message_id else {}),
    }


def provider_json(provider: ProviderInfo) -> Json:
    """Returns a Provider with its models."""
    source = {"env": "env", "config": "config"}.get(provider.source, "custom")
    return {
        "id": provider.id,
        "name": provider.name or provider.id,
        "source": source,
        "env": list(provider.env),
        "options": {},
        "models": {name: _model_json(model) for name, model in sorted(provider.models.items())},
    }


def default_model(providers: ProviderList) -> dict[str, str]:
    """Returns the default of the first provider that has one; {} when none has."""
    for provider in providers.providers:
        if name := providers.defaults.get(provider.id, ""):
            return {"providerID": provider.id, "modelID": name}
    return {}


def _model_json(model: ModelInfo) -> Json:
    can = set(model.capabilities.names) if model.HasField("capabilities") else {"tools", "images", "documents"}
    media = {"text": True, "audio": False, "image": "images" in can, "video": False, "pdf": "documents" in can}
    million = 1_000_000 * 1_000_000  # pico-USD in a USD, and OpenCode counts USD per million tokens
    return {
        "id": model.id,
        "providerID": model.provider_id,
        "api": {"id": model.id, "url": "", "npm": ""},
        "name": model.name or model.id,
        "capabilities": {
            "temperature": True,
            "reasoning": "reasoning" in can,
            "attachment": media["image"] or media["pdf"],
            "toolcall": "tools" in can,
            "input": media,
            "output": {"text": True, "audio": False, "image": False, "video": False, "pdf": False},
            "interleaved": False,
        },
        "cost": {
            "input": model.input_price_pico_usd_per_million / million,
            "output": model.output_price_pico_usd_per_million / million,
            "cache": {
                "read": model.cache_read_price_pico_usd_per_million / million,
                "write": model.cache_write_price_pico_usd_per_million / million,
            },
        },
        "limit": {"context": model.context_window_tokens, "output": model.max_output_tokens},
        "status": "active",
        "options": {},
        "headers": {},
        "release_date": "",
        "variants": {effort: {} for effort in ("low", "medium", "high")} if "reasoning" in can else {},
    }


def agent_json(agent: AgentInfo) -> Json:
    """Returns an Agent. Turnwire's rules stay on the server, so there are none to show."""
    return {
        "name": agent.name,
        "mode": "primary",
        "native": agent.built_in,
        "permission": [],
        "options": {},
        **({"description": agent.description} if agent.HasField("description") else {}),
        **({"color": agent.color} if agent.HasField("color") else {}),
        **(
            {"model": {"providerID": agent.model.provider_id, "modelID": agent.model.model_id}}
            if agent.HasField("model")
            else {}
        ),
    }


def parsed(text: str) -> Json:
    """Returns the JSON object that a text is; {} when it is none."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def milliseconds(time: Timestamp) -> int:
    """Returns a time in milliseconds since the Unix epoch."""
    return time.seconds * 1000 + time.nanos // 1_000_000
