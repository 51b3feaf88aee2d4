"""One model call: attempts, delays and fallback models until content arrives or no model is left.

A call is repeated only before its first content: text of two attempts is never joined. The same model is called again
while its provider is busy or unreachable, then the configured fallback models, each with its own attempts.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from turnwire.core.answer.journal import StepJournal
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.computing import compute
from turnwire.core.environment import Environment
from turnwire.core.settings import Retries
from turnwire.core.spans import chat_span, note_answer, note_provider
from turnwire.domain.conversation.events import RetryScheduled
from turnwire.domain.conversation.messages import Failure, ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import (
    ProviderAnswerOverLimit,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
    UnknownModel,
)
from turnwire.domain.fair_semaphore import Permit
from turnwire.ports.provider import PreparedRequest, Provider, ProviderRequest
from turnwire.ports.telemetry.observer import ModelCallEnd
from turnwire.ports.telemetry.tracing import Span


class ModelCall:
    """Feeds a message stream from a provider. One task calls `run`; cancelling it ends the HTTP request at once."""

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        stream: MessageStream,
        journal: StepJournal,
        *,
        slot: Permit,
        publish: Callable[[RetryScheduled], None],
        on_output: Callable[[], None],
    ) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn that needs the answer.
        stream: Takes the answer.
        journal: Saves it.
        slot: The slot among concurrent model calls; held by the caller.
        publish: Publishes to watchers that the call will be retried.
        on_output: Called when the first content arrives.
        """
        self._turn = turn
        self._on_output = on_output
        self._request: ProviderRequest | None = None
        """The request of the current attempt, until it is prepared."""
        self._started_at = 0.0  # of the current attempt, by the loop's clock
        self._first_output_at: float | None = None
        self._slot = slot
        self._environment = environment
        self._stream = stream
        self._journal = journal
        self._publish = publish
        self.pending_notice: RetryScheduled | None = None
        """The event that announced the current wait; None when the call does not wait."""
        self.was_asked = False
        """True once a provider is called, until it fails before its first content: then it has used nothing."""

    async def run(
        self,
        request_to: Callable[[ModelRef], Awaitable[ProviderRequest]],
        let_go: Callable[[], None],
        models: tuple[ModelRef, ...],
        announced: asyncio.Future[Any],
    ) -> ProviderError | None:
        """Calls the models in order until one answers.

        The provider is called before the message is durable: a commit takes less time than the first token.

        Args:
            request_to: Makes the request for an attempt; its model is replaced by the called one. The request is kept
                until the provider has read it.
            let_go: Called when nothing of a request is kept any more. Idempotent.
            models: The chosen one, then its fallbacks; at least one. Fallbacks that are not configured are skipped.
            announced: The commit that adds the message; no content is published before it is done.

        Returns:
            The error that ended the answer early; None when the provider finished.

        Raises:
            UnknownModel: the chosen model is no longer configured.
            StorageError: the message could not be stored.
        """
        self._request_to, self._let_go = request_to, let_go
        failure: ProviderError | None = None
        retries = self._environment.settings.retries
        models = (models[0], *filter(self._is_configured, models[1:]))
        for index, model in enumerate(models):
            for attempt in itertools.count(1):
                failure = await self._attempt(model, announced)
                if failure is None or self._stream.has_parts:
                    self._report(model, attempt, failure)
                    return failure
                delay = delay_before_retry(retries, failure, attempt)
                if delay is None:
                    note_long_wait(retries, failure)
                    break
                self._report(model, attempt, failure, delay=delay)
                self.pending_notice = await self._tell(failure, attempt, delay, model, announced)
                try:
                    self._slot.release()  # another call may run while this one waits
                    await asyncio.sleep(delay.total_seconds())
                    await self._slot.acquire(1)
                finally:
                    self.pending_notice = None
            is_last = failure is None or not may_fall_back(failure) or index + 1 == len(models)
            fallback = None if is_last else models[index + 1]
            self._report(model, attempt, failure, fallback=fallback)
            if failure is None or fallback is None:
                break
            await self._tell(failure, attempt, None, fallback, announced)
        return failure

    async def _tell(
        self,
        error: ProviderError,
        attempt: int,
        delay: timedelta | None,
        model: ModelRef,
        announced: asyncio.Future[Any],
    ) -> RetryScheduled:
        """Publishes the next attempt once the message is announced; raises when the message could not be stored."""
        notice = RetryScheduled(self._stream.message_id, Failure.of(error), attempt, delay, model)
        await asyncio.shield(announced)
        self._publish(notice)
        return notice

    async def _attempt(self, model: ModelRef, announced: asyncio.Future[Any]) -> ProviderError | None:
        """Calls one model once. Returns the error that ended the answer early."""
        self._stream.begin_attempt(model)
        self._request = await self._request_to(model)
        self._started_at, self._first_output_at = asyncio.get_running_loop().time(), None
        tracer = self._environment.tracer
        with chat_span(tracer, self._request, model, self._stream.session_id) as span:
            try:
                failure = await self._receive(model, announced, span)
            finally:
                self._request = None
                self._let_go()
            if span.is_recording:
                answer, finished, first = self._stream.snapshot(), self._stream.finished, self._first_output_seconds
                note_answer(span, tracer, answer, finished, failure=failure, first_output_seconds=first)
        return failure

    @property
    def _first_output_seconds(self) -> float | None:
        return None if self._first_output_at is None else self._first_output_at - self._started_at

    async def _receive(self, model: ModelRef, announced: asyncio.Future[Any], span: Span) -> ProviderError | None:
        watchers_know = False
        try:
            # A turn outlives its process, and the configuration may have changed since.
            self._environment.providers.check(model)
            provider = await self._environment.providers.get(model.provider_id)
            note_provider(span, provider)
            self._stream.origin = provider.origin
            answer = provider.stream(await self._prepared(provider, model))
            self.was_asked = True
            async with contextlib.aclosing(answer) as items:
                async for item in items:
                    if not watchers_know:
                        await asyncio.shield(announced)  # raises when the message could not be stored
                        watchers_know = True
                    self._stream.apply(item)
                    if self._first_output_at is None and self._stream.has_parts:
                        self._first_output_at = asyncio.get_running_loop().time()
                        self._on_output()
                    self._journal.note_change()
        except ProviderError as error:
            self.was_asked = self._stream.has_parts
            return error
        self._stream.end_answer()
        self._journal.note_change()
        return None

    async def _prepared(self, provider: Provider, model: ModelRef) -> PreparedRequest:
        """Returns the request of this attempt in the provider's form, and keeps the request itself no longer."""
        request, self._request = self._request, None
        assert request is not None
        prepared = await prepare_request(self._environment, self._turn, provider, request=request, model=model)
        return msgspec.structs.replace(prepared, was_read=self._let_go)

    def _report(
        self,
        model: ModelRef,
        attempt: int,
        failure: ProviderError | None,
        delay: timedelta | None = None,
        fallback: ModelRef | None = None,
    ) -> None:
        self._environment.observer.model_call_ended(
            ModelCallEnd(
                turn=self._turn,
                model=model,
                attempt=attempt,
                failure=failure,
                retry_delay=delay,
                fallback=fallback,
                seconds=asyncio.get_running_loop().time() - self._started_at,
                first_output_seconds=self._first_output_seconds,
            )
        )

    def _is_configured(self, model: ModelRef) -> bool:
        try:
            self._environment.providers.check(model)
        except (UnknownModel, ProviderError):
            return False
        return True


async def prepare_request(
    environment: Environment,
    turn: Turn,
    provider: Provider,
    *,
    request: ProviderRequest,
    model: ModelRef,
    unsaved: Mapping[str, bytes] = {},
) -> PreparedRequest:
    """Returns a request in the form of its provider. Costs what is new since the session's last one. Safe to cancel.

    Args:
        environment: Ports and settings.
        turn: The turn that needs the answer.
        provider: The provider.
        request: The request, without the bytes of its files; its model is replaced.
        model: The called model.
        unsaved: Files that are not stored, by hash.

    Raises:
        StorageError: a file could not be read.
    """
    capabilities = environment.providers.capabilities(model)
    request = msgspec.structs.replace(request, model_id=model.model_id, capabilities=capabilities, files=unsaved)
    async with environment.conversations.use(turn.tenant, turn.session_id) as conversation:
        writer = conversation.take_writer(provider)
        unwritten = writer.unwritten(request)
        if missing := unwritten.files - unsaved.keys():
            stored = await environment.store.of(turn.tenant).files(missing)
            request = msgspec.structs.replace(request, files={**stored, **unsaved})
        prepared = await compute(partial(writer.prepare, request), unwritten.messages)
        conversation.put_writer(provider, writer)
        return prepared


PASSING = (ProviderRateLimited, ProviderUnavailable, ProviderTimeout, ProviderStreamCut, ProviderStreamFailed)
"""Errors that may pass soon. A rejected request, a full context or an answer over a limit would fail again."""


def delay_before_retry(retries: Retries, error: ProviderError, attempt: int) -> timedelta | None:
    """Returns the delay before the same model is called again; None if it is not called again.

    Args:
        retries: The limits.
        error: The error that ended the attempt; its retry_after overrides the computed delay.
        attempt: Number of the attempt that failed, from 1.
    """
    if not isinstance(error, PASSING) or isinstance(error, ProviderAnswerOverLimit) or attempt > retries.max_retries:
        return None
    if error.retry_after is not None:
        return None if _waits_too_long(retries, error) else error.retry_after
    doubled: timedelta = min(retries.first_delay * 2 ** (attempt - 1), retries.longest_delay)
    # calls that failed together must not be repeated together
    return doubled * random.uniform(0.5, 1.0)


def note_long_wait(retries: Retries, error: ProviderError) -> None:
    """Adds to an error the delay that its provider requested, and the limit, if the delay is longer than the limit."""
    if _waits_too_long(retries, error) and error.retry_after is not None:
        asked, limit = error.retry_after.total_seconds(), retries.longest_delay_seconds
        error.message += f"; it requests a delay of {asked:g} seconds, above retries.longest_delay_seconds ({limit:g})"
        error.metadata |= {
            "retryAfterSeconds": f"{asked:g}",
            "limit": "retries.longest_delay_seconds",
            "limitValue": f"{limit:g}",
        }


def _waits_too_long(retries: Retries, error: ProviderError) -> bool:
    return error.retry_after is not None and error.retry_after > retries.longest_delay


def may_fall_back(error: ProviderError) -> bool:
    """Returns whether another model may succeed after this error."""
    return isinstance(error, (*PASSING, ProviderCredentialsRejected))
