"""Builds Anthropic Messages requests: https://docs.anthropic.com/en/api/messages."""

import re
from collections.abc import Callable
from typing import Any

from turnwire.domain.conversation.turns import GenerationOptions, ResponseFormatKind, ToolChoice, ToolChoiceMode
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.anthropic.abilities import refused_options
from turnwire.providers.anthropic.messages import THINKING, AnthropicMessages
from turnwire.providers.anthropic.stream import API
from turnwire.providers.anthropic.wire import marked
from turnwire.providers.request.content import strict_object
from turnwire.providers.request.encoding import encoded
from turnwire.providers.request.history import Members, Pieces
from turnwire.providers.request.reader import ImageLimits, RequestReader
from turnwire.providers.request.wire_names import CallIds

IMAGE_LIMITS = ImageLimits(max_bytes=5 * 2**20 * 3 // 4, max_side_pixels=8000)
"""An image may have 5 MiB, counted as base64, and 8000 pixels (https://docs.anthropic.com/en/docs/vision)."""

_BUDGET_TOKENS = {"low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}

_BUDGET_MODEL = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-2\d{7}|@|$|-latest))")
"""Models that think within a token budget; later models choose it themselves and accept an effort."""


class AnthropicWriter(AnthropicMessages):
    """Writes the requests of one conversation."""

    def __init__(self, provider_id: str, default_max_tokens: int) -> None:
        """Args:
        provider_id: The provider whose signed reasoning may be sent back.
        default_max_tokens: Output limit when the request gives none; the API requires one.
        """
        super().__init__(RequestReader(provider_id, API, CallIds(max_chars=64), IMAGE_LIMITS))
        self._default_max_tokens = default_max_tokens

    def _members(self, request: ProviderRequest) -> Members:
        if self._is_the_users_turn():
            self._go_on(None)
        # The ends of the tools, the system prompt and the last two user messages are marked for the cache; the API
        # allows 4 marks. The first of the two user messages is the end of the previous step's request. It is marked
        # because the API looks for a cache entry only up to 20 blocks before a mark, and a step with many calls is
        # longer. The API allows marks on all of these blocks: tools, texts that are not blank, files and results, but
        # not thinking.
        body: dict[str, object] = {
            "model": request.model_id,
            "max_tokens": request.options.max_output_tokens or self._default_max_tokens,
            "messages": Pieces(self._wire.closed(users_to_mark=2)),
            "stream": True,
        }
        if request.tools:
            [tools] = self._encoded_tools(request.tools, _tool).pieces
            body["tools"] = Pieces([marked(tools.removesuffix(b"]")) + b"]"])
        choice = self.reader.tool_choice(request.options.tool_choice, request.tools)
        if choice is not None:
            body["tool_choice"] = _tool_choice(choice)
        system = self.reader.system_prompt()
        if system:
            block = encoded({"type": "text", "text": system})
            body["system"] = Pieces([b"[" + marked(block) + b"]"])
        _apply_options(body, request.options, self.reader, self._runs_without_thinking)
        return list(body.items())

    def _runs_without_thinking(self) -> bool:
        """Returns whether the request continues an answer that began without thinking and must continue without it.

        All steps of a tool loop are one answer. It begins without thinking when another model began it, or when the
        content before it has changed. "When `thinking` is enabled, a final `assistant` message must start with a
        thinking block": models that choose their thinking themselves do not check that.
        """
        wire = self._wire
        at = len(wire.roles) - 1
        if wire.roles[at] == "user":
            if all(kind != "tool_result" for kind in wire.kinds_of(at)):
                return False
            at -= 1
        while at >= 2 and all(kind == "tool_result" for kind in wire.kinds_of(at - 1)):
            at -= 2
        return wire.kinds_of(at)[0] not in THINKING


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def _tool_choice(choice: ToolChoice) -> dict[str, str]:
    if choice.tool_name:
        return {"type": "tool", "name": choice.tool_name}
    return {"type": {ToolChoiceMode.REQUIRED: "any"}.get(choice.mode, str(choice.mode))}


def _apply_options(
    body: dict[str, Any], options: GenerationOptions, reader: RequestReader, runs_without_thinking: Callable[[], bool]
) -> None:
    _apply_format(body, options, reader)
    if options.stop_sequences:
        body["stop_sequences"] = list(options.stop_sequences)
    sampling = {"temperature": options.temperature, "top_p": options.top_p}
    given = {name: value for name, value in sampling.items() if value is not None}
    by_budget = _BUDGET_MODEL.search(body["model"]) is not None
    wanted = bool(options.reasoning_effort) and options.reasoning_effort != "none"
    if wanted and by_budget and runs_without_thinking():
        reader.option_dropped(
            "reasoning_effort", options.reasoning_effort, "the answer being continued began without thinking"
        )
        wanted = False
    if not wanted:
        if len(given) > 1:
            # "`temperature` and `top_p` cannot both be specified for this model"
            reader.option_dropped("top_p", given.pop("top_p"), "it cannot be combined with temperature")
        body.update(given)
        return
    for name, value in given.items():
        reader.option_dropped(name, value, "it cannot be combined with reasoning")
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        # "Thinking may not be enabled when tool_choice forces tool use."
        reader.option_dropped("tool_choice", body.pop("tool_choice")["type"], "it cannot be combined with reasoning")
    effort = {"minimal": "low"}.get(options.reasoning_effort, options.reasoning_effort)
    if effort != options.reasoning_effort:
        reader.option_replaced(
            "reasoning_effort", options.reasoning_effort, f"the lowest that the API accepts is {effort}"
        )
    if by_budget:
        if effort not in _BUDGET_TOKENS:
            reader.option_replaced("reasoning_effort", effort, "it is unknown; medium is used")
        budget = _BUDGET_TOKENS.get(effort, _BUDGET_TOKENS["medium"])
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        # The API's limit covers thinking and answer; the caller's limit is for the answer.
        body["max_tokens"] += budget
    else:
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {**body.get("output_config", {}), "effort": effort}


def _apply_format(body: dict[str, Any], options: GenerationOptions, reader: RequestReader) -> None:
    form = options.response_format
    if form is None or form.kind is ResponseFormatKind.TEXT:
        return
    # A fallback may lack structured outputs: it then answers freely, and the repair reports it.
    refused = [why for name, why in refused_options(body["model"], options) if name == "response_format"]
    if refused:
        reader.option_dropped("response_format", str(form.kind), refused[0])
        return
    body["output_config"] = {"format": {"type": "json_schema", "schema": strict_object(form.schema_json) or {}}}
