"""The span of one call of a model: `chat`."""

import time

from turnwire.core.spans.content import input_content, output_content
from turnwire.core.spans.turns import usage_attributes
from turnwire.domain.conversation.messages import FinishReason, Message, ModelRef
from turnwire.domain.errors import ProviderError
from turnwire.ports.provider import Provider, ProviderRequest, StepFinished
from turnwire.ports.telemetry.tracing import Attributes, Span, SpanKind, Tracer

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


class ChatSpan:
    """One attempt to get an answer. Enter `span`; used by one task.

    A retry and a fallback are attempts of their own. `_began` is the time of its start in seconds.
    """

    def __init__(
        self, tracer: Tracer, request: ProviderRequest, model: ModelRef, session_id: str, *, is_summary: bool = False
    ) -> None:
        """Starts the span.

        Args:
            tracer: Starts it.
            request: What the model is asked.
            model: The model that is asked now.
            session_id: The conversation.
            is_summary: Whether the model is asked for a summary of it and not for an answer.
        """
        options = request.options
        self._records_content = tracer.records_content
        self._began = time.perf_counter()
        self._has_chunk = False
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
        self.span: Span = tracer.start(f"chat {model.model_id}", attributes, SpanKind.CLIENT)
        if self._records_content and self.span.is_recording:
            self.span.set(input_content(request))

    def note_provider(self, provider: Provider) -> None:
        """Adds whose form of the API is spoken, unless the provider's id says it already."""
        vendor = _VENDORS_OF_APIS.get(provider.api)
        if vendor is not None and provider.provider_id not in _VENDORS:
            self.span.set({"gen_ai.provider.name": vendor})

    def note_item(self) -> None:
        """Call for each item of the answer: the first one gives the time until it."""
        if not self._has_chunk:
            self._has_chunk = True
            self.span.set({"gen_ai.response.time_to_first_chunk": time.perf_counter() - self._began})

    def note_answer(self, answer: Message, finished: StepFinished | None, failure: ProviderError | None) -> None:
        """Adds what came back.

        Args:
            answer: The message so far.
            finished: The end marker; None when it did not come.
            failure: What ended the answer early; None when the provider finished.
        """
        run = answer.model_run
        self.span.set(
            {
                "gen_ai.response.model": run.model_served or None if run is not None else None,
                "gen_ai.response.id": run.response_id or None if run is not None else None,
                "gen_ai.response.finish_reasons": [finished.reason] if finished is not None else None,
                **usage_attributes(answer.usage),
            }
        )
        if self._records_content:
            reason = finished.reason if finished is not None else FinishReason.ERROR
            self.span.set(output_content(answer, reason))
        if failure is not None:
            self.span.fail(failure.reason)
