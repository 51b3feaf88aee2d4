"""The response object: what was asked for, and what came of it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_BUDGET,
    FINISH_REASON_CONTENT_FILTER,
    FINISH_REASON_CONTEXT_FULL,
    FINISH_REASON_ERROR,
    FINISH_REASON_INTERRUPTED,
    FINISH_REASON_LENGTH,
    FINISH_REASON_MAX_STEPS,
    SessionMessage,
    TokenUsage,
)
from opencode.turn.turn_pb2 import (
    RESPONSE_FORMAT_KIND_JSON,
    RESPONSE_FORMAT_KIND_JSON_SCHEMA,
    TOOL_CHOICE_MODE_NONE,
    TOOL_CHOICE_MODE_REQUIRED,
    ResponseFormat,
    ToolChoice,
    Turn,
)
from turnwire_adapters.responses.ids import ResponseId, conversation_id, response_id
from turnwire_adapters.responses.items import Item
from turnwire_adapters.responses.requests import SERVERS, STRICT

FACTS_KEY = "openai"
_FACTS: dict[str, type] = {
    **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key", "service_tier", "truncation"), str),
    **dict.fromkeys(("previous_response_id", "reasoning_summary", "request"), str),
    **dict.fromkeys(("background", "conversation", "store"), bool),
    **dict.fromkeys(("max_tool_calls", "segment"), int),
    **dict.fromkeys((SERVERS, STRICT), list),
    "metadata": dict,
}
"""Facts of requests by their names, with their types."""
"""Under which a request's own facts are in `metadata_json` of what it stored."""

_INCOMPLETE = {
    FINISH_REASON_LENGTH: "max_output_tokens",
    FINISH_REASON_MAX_STEPS: "max_output_tokens",
    FINISH_REASON_BUDGET: "max_output_tokens",
    FINISH_REASON_CONTEXT_FULL: "max_output_tokens",
    FINISH_REASON_CONTENT_FILTER: "content_filter",
}
_TOOL_CHOICES = {TOOL_CHOICE_MODE_NONE: "none", TOOL_CHOICE_MODE_REQUIRED: "required"}
_FAILURE_CODES = {"PROVIDER_RATE_LIMITED": "rate_limit_exceeded"}


@dataclass(slots=True)
class Usage:
    """Tokens and cost of a response's steps."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    reasoning: int = 0
    cost_pico_usd: int = 0
    known: bool = False
    """Whether any step reported tokens."""

    def add(self, message: SessionMessage) -> None:
        """Adds a step."""
        self.cost_pico_usd += message.cost_pico_usd
        if not message.HasField("usage"):
            return
        used: TokenUsage = message.usage
        self.known = True
        self.prompt += used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
        self.cached += used.cache_read_tokens
        self.generated += used.output_tokens + used.reasoning_tokens
        self.reasoning += used.reasoning_tokens

    def shown(self) -> dict[str, Any] | None:
        """Returns the object of the API; None when nothing is known."""
        if not self.known:
            return None
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached},
            "output_tokens": self.generated,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.generated,
        }


@dataclass(slots=True)
class Outcome:
    """State of a response, with its output."""

    status: str = "in_progress"
    error: dict[str, str] | None = None
    incomplete: str = ""
    completed_at: int | None = None
    output: list[Item] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def end_with(self, turn: Turn) -> None:
        """Takes status and error from a turn that has ended."""
        reason = turn.finish_reason
        self.completed_at = turn.end_time.seconds or None
        if reason == FINISH_REASON_ABORTED:
            self.status = "cancelled"
        elif reason in _INCOMPLETE:
            self.status, self.incomplete = "incomplete", _INCOMPLETE[reason]
        elif reason in (FINISH_REASON_ERROR, FINISH_REASON_INTERRUPTED) or turn.HasField("failure"):
            self.status = "failed"
            code = _FAILURE_CODES.get(turn.failure.reason, "server_error")
            self.error = {"code": code, "message": turn.failure.message or "The answer was interrupted."}
        else:
            self.status = "completed"


def facts_of(metadata_json: str) -> dict[str, Any]:
    """Returns the facts that a request left with what it stored, without what another client left under their key."""
    try:
        facts = json.loads(metadata_json or "{}").get(FACTS_KEY)
    except (ValueError, AttributeError):
        return {}
    known = facts.items() if isinstance(facts, dict) else ()
    return {name: value for name, value in known if type(value) is _FACTS.get(name)}


def response_object(named: ResponseId, turn: Turn, facts: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Returns the object, complete: clients check it against a schema that wants every field.

    Args:
        named: What its id names.
        turn: The turn with its settings.
        facts: What the request was, as far as Turnwire has no field for it.
        outcome: How it stands.
    """
    settings, options = turn.settings, turn.settings.options
    strict = facts.get(STRICT) or ()
    metadata = dict(facts.get("metadata") or {})
    if outcome.usage.cost_pico_usd:
        metadata["turnwire.cost_pico_usd"] = str(outcome.usage.cost_pico_usd)
    model = f"{settings.model.provider_id}/{settings.model.model_id}"
    return {
        "id": response_id(*named),
        "object": "response",
        "created_at": int(facts.get("created_at") or turn.create_time.seconds),
        "completed_at": outcome.completed_at,
        "status": outcome.status,
        "background": bool(facts.get("background")),
        "error": outcome.error,
        "incomplete_details": {"reason": outcome.incomplete} if outcome.incomplete else None,
        "instructions": settings.system if settings.HasField("system") and settings.system else None,
        "max_output_tokens": options.max_output_tokens if options.HasField("max_output_tokens") else None,
        "max_tool_calls": facts.get("max_tool_calls"),
        "model": model,
        "output": list(outcome.output),
        "parallel_tool_calls": True,
        "previous_response_id": facts.get("previous_response_id"),
        "conversation": {"id": conversation_id(named.session_id)} if facts.get("conversation") else None,
        "reasoning": {"effort": options.reasoning_effort or None, "summary": facts.get("reasoning_summary")},
        "store": facts.get("store", True),
        "temperature": options.temperature if options.HasField("temperature") else 1.0,
        "text": {"format": _text_format(options.response_format), "verbosity": "medium"},
        "tool_choice": _tool_choice(options.tool_choice),
        "tools": [
            *(_tool(tool, strict) for tool in settings.tools),
            *map(_server, facts.get(SERVERS) or ()),
        ],
        "top_p": options.top_p if options.HasField("top_p") else 1.0,
        "top_logprobs": 0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": facts.get("truncation") or "auto",
        "usage": outcome.usage.shown(),
        "user": facts.get("user"),
        "safety_identifier": facts.get("safety_identifier"),
        "prompt_cache_key": facts.get("prompt_cache_key"),
        "service_tier": facts.get("service_tier") or "default",
        "metadata": metadata,
    }


def _text_format(form: ResponseFormat) -> dict[str, Any]:
    if form.kind == RESPONSE_FORMAT_KIND_JSON:
        return {"type": "json_object"}
    if form.kind != RESPONSE_FORMAT_KIND_JSON_SCHEMA:
        return {"type": "text"}
    schema = json.loads(form.schema_json)
    described = {"description": form.description} if form.description else {}
    return {"type": "json_schema", "name": form.name, "schema": schema, "strict": form.strict, **described}


def _tool_choice(choice: ToolChoice) -> Any:
    if choice.tool_name:
        return {"type": "function", "name": choice.tool_name}
    return _TOOL_CHOICES.get(choice.mode, "auto")


def _tool(tool: Any, strict: Collection[str]) -> dict[str, Any]:
    parameters = json.loads(tool.input_schema_json) if tool.input_schema_json else None
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or None,
        "parameters": parameters,
        "strict": tool.name in strict,
    }


def _server(label: str) -> dict[str, Any]:
    return {"type": "mcp", "server_label": label}
