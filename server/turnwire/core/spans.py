"""The spans of turns (`invoke_agent`), model calls (`chat`) and tool calls (`execute_tool`), with their attributes.

Names and attributes that begin with `gen_ai.` follow the GenAI semantic conventions of OpenTelemetry as published in
github.com/open-telemetry/semantic-conventions-genai in September 2026, which is after version 1.41 of the general
conventions and has no version of its own. They are in development: a later version may rename them. Ours begin with
`turnwire.`. Prompts and answers become attributes only if the configuration says so, in the JSON forms of the
conventions.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageType,
    ModelRef,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ProviderError
from turnwire.domain.money import Usage
from turnwire.ports.commit import PutTurn, Work
from turnwire.ports.provider import Provider, ProviderRequest, StepFinished
from turnwire.ports.telemetry.tracing import Attributes, Span, SpanKind, Tracer, current_span
from turnwire.ports.tools import ToolOutcome

MAX_TEXT_CHARS = 8_192
"""Longest text in an attribute; the rest of it is left out."""

MAX_ATTRIBUTE_BYTES = 65_536
"""Longest list of messages in an attribute; older ones are left out. Spans wait in memory until they are sent."""

TOOL_ERROR = "tool_error"
"""The error of a call whose tool answered with an error."""

_VENDORS = {
    "deepseek": "deepseek",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "perplexity": "perplexity",
    "xai": "x_ai",
}
"""The conventions' names of vendors, by the usual ids of their providers."""

_VENDORS_OF_APIS = {"anthropic": "anthropic", "openai_chat": "openai", "openai_responses": "openai"}

_ROLES = {
    MessageType.USER: "user",
    MessageType.ASSISTANT: "assistant",
    MessageType.SYSTEM: "system",
    MessageType.TOOL_RESULT: "tool",
}


def turn_span(tracer: Tracer, turn: Turn) -> Span:
    """Starts the span of a turn that runs now.

    It belongs to the call that sent the message, even if the turn waited in the queue, the call has ended, or the
    server was restarted: the turn is stored with the position of the call in its trace.
    """
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": turn.agent or None,
        "gen_ai.conversation.id": turn.session_id,
        "gen_ai.request.model": turn.model.model_id,
        "turnwire.turn.id": turn.turn_id,
        "turnwire.tenant": turn.tenant,
        "turnwire.provider": turn.model.provider_id,
        "turnwire.turn.resumes": turn.resumes or None,
    }
    return tracer.start(f"invoke_agent {turn.agent}".strip(), attributes, parent=turn.traceparent)


def note_accepted(turn: Turn) -> None:
    """Adds the session and turn of an accepted message to the span of the call that sent it."""
    current_span().set({"gen_ai.conversation.id": turn.session_id, "turnwire.turn.id": turn.turn_id})


def note_turn_end(span: Span, work: Work) -> None:
    """Adds the result of a turn to its span, from the work that ends the turn."""
    turn = next((change.turn for change in work.changes if isinstance(change, PutTurn)), None)
    if turn is None or not span.is_recording:
        return
    reason = turn.finish_reason
    span.set(
        {
            "gen_ai.response.finish_reasons": [reason] if reason is not None else None,
            "turnwire.turn.steps": turn.steps,
            **usage_attributes(turn.usage),
        }
    )
    if turn.failure is not None or reason is FinishReason.ERROR:
        span.fail(turn.failure.reason if turn.failure is not None else "INTERNAL")


def usage_attributes(usage: Usage | None) -> Attributes:
    """Returns the tokens; those of the prompt include cached ones, and those of the answer its reasoning."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_total,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.output_tokens": usage.generated_total,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def chat_span(
    tracer: Tracer, request: ProviderRequest, model: ModelRef, session_id: str, *, is_summary: bool = False
) -> Span:
    """Starts the span of one attempt to get an answer. A retry and a fallback are attempts of their own.

    Args:
        tracer: Starts it.
        request: The request to the model.
        model: The called model.
        session_id: The conversation.
        is_summary: Whether the call is for a summary of it and not for an answer.
    """
    options = request.options
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _VENDORS.get(model.provider_id, model.provider_id),
        "gen_ai.conversation.id": session_id,
        "gen_ai.request.model": model.model_id,
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": options.max_output_tokens,
        "gen_ai.request.temperature": options.temperature,
        "gen_ai.request.top_p": options.top_p,
        "gen_ai.request.reasoning.level": options.reasoning_effort or None,
        "turnwire.provider": model.provider_id,
        "turnwire.summary": is_summary or None,
    }
    span = tracer.start(f"chat {model.model_id}", attributes, SpanKind.CLIENT)
    if tracer.records_content and span.is_recording:
        span.set(input_content(request))
    return span


def note_provider(span: Span, provider: Provider) -> None:
    """Adds the vendor of the API, unless the provider's id already names it."""
    vendor = _VENDORS_OF_APIS.get(provider.api)
    if vendor is not None and provider.provider_id not in _VENDORS:
        span.set({"gen_ai.provider.name": vendor})


def note_answer(
    span: Span,
    tracer: Tracer,
    answer: Message,
    finished: StepFinished | None,
    *,
    failure: ProviderError | None = None,
    first_output_seconds: float | None = None,
) -> None:
    """Adds the result of a model call to its span.

    Args:
        span: The span of the call.
        tracer: Started it.
        answer: The message so far.
        finished: The end marker; None when it did not come.
        failure: The error that ended the answer early; None when the provider finished.
        first_output_seconds: Time until the first content; None when none came, or it was not measured.
    """
    run = answer.model_run
    span.set(
        {
            "gen_ai.response.model": run.model_served or None if run is not None else None,
            "gen_ai.response.id": run.response_id or None if run is not None else None,
            "gen_ai.response.finish_reasons": [finished.reason] if finished is not None else None,
            "gen_ai.response.time_to_first_chunk": first_output_seconds,
            **usage_attributes(answer.usage),
        }
    )
    if tracer.records_content:
        span.set(output_content(answer, finished.reason if finished is not None else FinishReason.ERROR))
    if failure is not None:
        span.fail(failure.reason)


def server_tool_span(tracer: Tracer, call: ToolUse) -> Span:
    """Starts the span of a tool that the server runs now."""
    return _start(tracer, call, "extension")


def note_outcome(span: Span, tracer: Tracer, outcome: ToolOutcome) -> None:
    """Adds the result of a server's tool to its span."""
    _note_result(span, tracer, outcome.output, is_error=outcome.is_error)


def client_tool_span(tracer: Tracer, call: ToolUse) -> Span:
    """Starts the span of a tool that the client may run from now on. It lasts until the call has a result."""
    return _start(tracer, call, "function")


def end_client_tool(span: Span, tracer: Tracer, call: ToolUse) -> None:
    """Ends the span of a client's tool; a call without a result was cancelled."""
    if call.status.settled:
        is_error = call.status is ToolStatus.ERROR
        _note_result(span, tracer, (call.error if is_error else call.output) or "", is_error=is_error)
    else:
        span.set({"turnwire.cancelled": True})
    span.end()


def _start(tracer: Tracer, call: ToolUse, kind: str) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id or None,
        "gen_ai.tool.type": kind,
        "gen_ai.tool.call.arguments": shortened(call.input_json or "{}") if tracer.records_content else None,
    }
    return tracer.start(f"execute_tool {call.name}", attributes)


def _note_result(span: Span, tracer: Tracer, output: str, *, is_error: bool) -> None:
    if tracer.records_content:
        span.set({"gen_ai.tool.call.result": shortened(output)})
    if is_error:
        span.fail(TOOL_ERROR)


def input_content(request: ProviderRequest) -> Attributes:
    """Returns the system prompt and the newest messages that fit. Files are named, not included."""
    system = [{"type": "text", "content": shortened(request.system)}] if request.system else []
    return {
        "gen_ai.system_instructions": _json(system) if system else None,
        "gen_ai.input.messages": _newest(request.messages),
    }


def output_content(answer: Message, reason: FinishReason) -> Attributes:
    """Returns the answer."""
    [said, *_] = _forms(answer)
    return {"gen_ai.output.messages": _json([{**said, "finish_reason": str(reason)}])}


def shortened(text: str) -> str:
    """Returns the beginning of a text that is longer than `MAX_TEXT_CHARS`."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}... [{len(text)} characters]"


def _newest(messages: tuple[Message, ...]) -> str:
    kept: list[str] = []
    left = MAX_ATTRIBUTE_BYTES
    for message in reversed(messages):
        forms = [_json(form) for form in _forms(message)]
        left -= sum(len(form.encode()) + 1 for form in forms)
        if left < 0:
            break
        kept[:0] = forms
    return f"[{','.join(kept)}]"


def _forms(message: Message) -> Iterator[dict[str, Any]]:
    """Yields a message, then the results of its calls as a message of the tools, as models get them."""
    parts = [form for part in message.parts if (form := _part(part)) is not None]
    yield {"role": _ROLES.get(message.type, str(message.type)), "parts": parts}
    results = [
        {"type": "tool_call_response", "id": call.call_id, "response": shortened(call.output or call.error or "")}
        for _, call in message.tool_calls()
        if call.status.settled
    ]
    if results:
        yield {"role": "tool", "parts": results}


def _part(part: Part) -> dict[str, Any] | None:
    match part.content:
        case Text(text) | Refusal(text):
            return {"type": "text", "content": shortened(text)}
        case Reasoning(text):
            return {"type": "reasoning", "content": shortened(text)}
        case ToolUse() as call:
            arguments = shortened(call.input_json)
            return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}
        case ToolResult() as result:
            return {"type": "tool_call_response", "id": result.call_id, "response": shortened(result.output)}
        case File() as file:
            return {"type": "file", "modality": file.mime.partition("/")[0], "mime_type": file.mime, "file_id": ""}
        case _:
            return None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
