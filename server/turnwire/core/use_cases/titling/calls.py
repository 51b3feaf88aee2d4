"""One call of a model for a title."""

import asyncio
import contextlib

import msgspec

from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.environment import Environment
from turnwire.core.token_estimate import estimate_tokens
from turnwire.core.use_cases.titling.words import INSTRUCTION
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef, Part, Text
from turnwire.domain.conversation.turns import GenerationOptions, Turn
from turnwire.domain.errors import ProviderError, ProviderStreamCut
from turnwire.ports.provider import ProviderRequest
from turnwire.ports.telemetry.observer import ModelCallEnd

MAX_ANSWER_BYTES = 64 * 1024
"""Of what the model writes, reasoning included: a title takes far less."""


class TitleCall:
    """Asks a model once, without retries: a title is worth no second call."""

    def __init__(self, environment: Environment, turn: Turn, model: ModelRef) -> None:
        """Takes the turn whose answer has ended, and the model to ask."""
        self._environment = environment
        self._turn = turn
        self._model = model
        self.paid: Message | None = None
        """The answer with what it has used, also of a call that failed or was cancelled; None before."""

    async def ask(self, words: str) -> str:
        """Returns what the model writes. Cancelling this ends the HTTP request at once.

        Raises:
            ProviderError: the model could not be asked, or did not end its answer.
            UnknownModel: it is not configured.
        """
        environment, model = self._environment, self._model
        environment.providers.check(model)
        provider = await environment.providers.get(model.provider_id)
        request = ProviderRequest(
            model_id=model.model_id,
            system=INSTRUCTION,
            messages=(self._message(MessageType.USER, words),),
            options=GenerationOptions(max_output_tokens=environment.settings.titles.max_output_tokens),
        )
        prepared = provider.writer().prepare(request)
        limits = msgspec.structs.replace(environment.settings.limits, max_answer_bytes=MAX_ANSWER_BYTES)
        stream = MessageStream(self._message(MessageType.ASSISTANT, ""), lambda _: None, environment.new_id, limits)
        stream.begin_attempt(model)
        stream.origin = provider.origin
        started_at, was_asked = asyncio.get_running_loop().time(), True
        failure: ProviderError | None = None
        try:
            async with contextlib.aclosing(provider.stream(prepared)) as items:
                async for item in items:
                    stream.apply(item)
            if stream.finished is None:
                raise ProviderStreamCut("the stream of the title ended without its end marker")
        except ProviderError as error:
            failure, was_asked = error, stream.has_parts
            raise
        finally:
            self._note_paid(stream, request, was_asked=was_asked)
            seconds = asyncio.get_running_loop().time() - started_at
            ended = ModelCallEnd(turn=self._turn, model=model, failure=failure, seconds=seconds)
            environment.observer.model_call_ended(ended)
        answer = stream.snapshot()
        return "\n".join(part.content.text for part in answer.parts if isinstance(part.content, Text))

    def _note_paid(self, stream: MessageStream, request: ProviderRequest, *, was_asked: bool) -> None:
        providers = self._environment.providers
        answer = with_estimate(
            with_cost(stream.snapshot(), providers),
            providers,
            was_asked=was_asked,
            is_cut=stream.finished is None,
            prompt_tokens=estimate_tokens(request),
        )
        self.paid = answer if was_asked or answer.usage is not None else None
        self._environment.observer.answer_ended(self._turn, answer, is_summary=True)

    def _message(self, kind: MessageType, words: str) -> Message:
        environment = self._environment
        now = environment.clock()
        part = Part(part_id=environment.new_id("prt"), index=0, content=Text(words))
        return Message(
            message_id=environment.new_id("msg"),
            session_id=self._turn.session_id,
            type=kind,
            status=MessageStatus.COMPLETE if words else MessageStatus.STREAMING,
            created_at=now,
            updated_at=now,
            parts=(part,) if words else (),
            turn_id=self._turn.turn_id,
        )
