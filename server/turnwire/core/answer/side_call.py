"""A single model call outside the steps of a turn, without retries: for a summary, or for a title."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.computing import compute
from turnwire.core.environment import Environment
from turnwire.core.spans import chat_span, note_answer, note_provider
from turnwire.core.token_estimate import estimate_tokens
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef, Part, Text
from turnwire.domain.conversation.turns import GenerationOptions, Turn
from turnwire.domain.errors import ProviderError, ProviderStreamCut
from turnwire.domain.limits import Limits
from turnwire.ports.provider import ProviderRequest, StepFinished
from turnwire.ports.telemetry.observer import ModelCallEnd
from turnwire.ports.telemetry.tracing import Span, Tracer


class SideCall:
    """One call. Used by one task."""

    def __init__(
        self, environment: Environment, turn: Turn, model: ModelRef, *, limits: Limits, tracer: Tracer
    ) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn for which the model is called.
        model: The model.
        limits: Limits on its answer.
        tracer: Has the span of the call.
        """
        self._environment = environment
        self._turn = turn
        self._model = model
        self._tracer = tracer
        self._stream = MessageStream(
            self._message(MessageType.ASSISTANT, ""), lambda _: None, environment.new_id, limits
        )
        self._was_asked = False
        self.answer: Message | None = None
        """The answer with its usage, also of a call that failed or was cancelled; None before the call."""

    @property
    def has_used(self) -> bool:
        """Whether the call has used something, as far as known."""
        return self._was_asked or (self.answer is not None and self.answer.usage is not None)

    async def ask(self, instruction: str, words: str, max_tokens: int) -> StepFinished:
        """Calls the model, and returns the end marker. Cancelling this ends the HTTP request at once.

        Raises:
            ProviderError: the model could not be called, or did not end its answer.
        """
        environment, stream, started_at = self._environment, self._stream, asyncio.get_running_loop().time()
        request = ProviderRequest(
            model_id=self._model.model_id,
            system=instruction,
            messages=(self._message(MessageType.USER, words),),
            options=GenerationOptions(max_output_tokens=max_tokens),
        )
        stream.begin_attempt(self._model)
        try:
            with chat_span(self._tracer, request, self._model, self._turn.session_id, is_summary=True) as span:
                await self._receive(request, span)
                if stream.finished is None:
                    raise ProviderStreamCut("the answer of the provider ended without its end marker")
        except ProviderError as error:
            self._was_asked = stream.has_parts
            self._report(started_at, error)
            raise
        else:
            self._report(started_at, None)
            return stream.finished
        finally:
            self.answer = with_estimate(
                with_cost(stream.snapshot(), environment.providers),
                environment.providers,
                was_asked=self._was_asked,
                is_cut=stream.finished is None,
                prompt_tokens=estimate_tokens(request),
            )
            environment.observer.answer_ended(self._turn, self.answer, is_summary=True)

    def texts(self) -> Sequence[str]:
        """Returns the texts of the answer."""
        return [part.content.text for part in self._stream.snapshot().parts if isinstance(part.content, Text)]

    async def _receive(self, request: ProviderRequest, span: Span) -> None:
        stream = self._stream
        provider = await self._environment.providers.get(self._model.provider_id)
        note_provider(span, provider)
        stream.origin = provider.origin
        try:
            prepared = await compute(partial(provider.writer().prepare, request), request.messages)
            self._was_asked = True
            async with contextlib.aclosing(provider.stream(prepared)) as items:
                async for item in items:
                    stream.apply(item)
        finally:
            if span.is_recording:
                note_answer(span, self._tracer, stream.snapshot(), stream.finished)

    def _report(self, started_at: float, failure: ProviderError | None) -> None:
        seconds = asyncio.get_running_loop().time() - started_at
        ended = ModelCallEnd(turn=self._turn, model=self._model, failure=failure, seconds=seconds)
        self._environment.observer.model_call_ended(ended)

    def _message(self, kind: MessageType, words: str) -> Message:
        now = self._environment.clock()
        part = Part(part_id=self._environment.new_id("prt"), index=0, content=Text(words))
        return Message(
            message_id=self._environment.new_id("msg"),
            session_id=self._turn.session_id,
            type=kind,
            status=MessageStatus.COMPLETE if words else MessageStatus.STREAMING,
            created_at=now,
            updated_at=now,
            parts=(part,) if words else (),
            turn_id=self._turn.turn_id,
        )
