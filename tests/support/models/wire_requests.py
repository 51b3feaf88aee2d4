"""Bodies and repairs that each API's adapter makes of a neutral request, and what there is to check in them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, settings

from tests.support.oracles.histories import Conversation
from tests.support.rules import check_anthropic, check_chat, check_responses
from turnwire.domain.conversation.messages import FinishReason, MessageType
from turnwire.ports.provider import PreparedRequest, ProviderRequest
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of
from turnwire.providers.openai_responses.request import ResponsesWriter

Body = dict[str, Any]

MISTRAL = dialect_of("https://api.mistral.ai/v1", False, False)

BUILDERS: Mapping[str, Callable[[ProviderRequest, str], PreparedRequest]] = {
    "anthropic": lambda request, provider: AnthropicWriter(provider, 1000).prepare(request),
    "chat": lambda request, provider: ChatWriter(provider, dialect_of("", True, False)).prepare(request),
    "deepseek": lambda request, provider: ChatWriter(provider, dialect_of("http://d", True, True)).prepare(request),
    "mistral": lambda request, provider: ChatWriter(provider, MISTRAL).prepare(request),
    "responses": lambda request, provider: ResponsesWriter(provider, "auto").prepare(request),
}
"""The APIs and dialects; each takes the request and the id of the provider that is asked."""

normal_run = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def body_of(prepared: PreparedRequest) -> Body:
    """Returns the body of a request as a value."""
    body: Body = json.loads(b"".join(prepared.pieces))
    return body


def api_of(dialect: str) -> str:
    """Returns the API's name in provider state."""
    return {"anthropic": "anthropic", "responses": "openai_responses"}.get(dialect, "openai_chat")


def mostly_with(dialect: str, provider_id: str, model_id: str) -> Conversation:
    """Returns a conversation in which most answers are of this model."""
    return Conversation(api_of(dialect), provider_id, model_id)


def only_with(dialect: str, provider_id: str, model_id: str) -> Conversation:
    """Returns a conversation in which all answers are of this model."""
    return Conversation.of_one_model(api_of(dialect), provider_id, model_id)


def violations(dialect: str, body: Body, request: ProviderRequest) -> list[str]:
    """Returns the rules of its API that the body breaks."""
    if dialect == "responses":
        return check_responses(body)
    if dialect != "anthropic":
        return check_chat(body, mistral=dialect == "mistral", deepseek=dialect == "deepseek")
    answers = [message for message in request.messages if message.type is MessageType.ASSISTANT]
    paused = bool(answers) and answers[-1].finish_reason is FinishReason.PAUSED
    return check_anthropic(body, continues_pause=paused)


def wire_messages(body: Body) -> list[Body]:
    """Returns the messages or items of a body, without the marks for the prompt cache."""
    messages: list[Body] = _unmarked(body.get("messages", body.get("input")))
    return messages


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _unmarked(item) for name, item in value.items() if name != "cache_control"}
