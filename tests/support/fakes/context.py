"""A store that keeps messages, and a model with an answer for each call: for tests of what a turn sends over time."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from tests.support.fakes.core import FakeStore, FakeWriter
from tests.support.fakes.domain_values import adding
from turnwire.domain.conversation.messages import FinishReason, Message
from turnwire.domain.money import Usage
from turnwire.domain.repairs import Repair
from turnwire.ports.commit import Commit, Committed, PutMessage
from turnwire.ports.provider import (
    PreparedRequest,
    ProviderOrigin,
    ProviderRequest,
    StepFinished,
    StreamItem,
    TextDelta,
    UsageReported,
)
from turnwire.ports.store import Spent

STOP = StepFinished(FinishReason.STOP, "stop")


def says(text: str, usage: Usage | None = None) -> tuple[StreamItem, ...]:
    """Returns the items of an answer in order."""
    return (TextDelta(0, text), *([UsageReported(usage)] if usage else []), STOP)


@dataclass
class KeepingStore(FakeStore):
    """Messages that are committed become part of the conversation at once."""

    spent_so_far: Spent = field(default_factory=lambda: Spent(None, None))
    contents: Mapping[str, bytes] = field(default_factory=dict)
    asked_files: list[str] = field(default_factory=list)
    """Hashes of the files whose bytes were read."""

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Keeps the messages."""
        kept = {message.message_id: message for message in self.conversation}
        for change in commit.changes:
            if isinstance(change, PutMessage):
                kept[change.message.message_id] = change.message
        self.conversation = tuple(kept.values())
        return super().commit(commit)

    def _committed(self, commit: Commit) -> Committed:
        ids = [message.message_id for message in self.conversation]
        changed = {change.message.message_id for change in commit.changes if isinstance(change, PutMessage)}
        previous = {one: before for before, one in pairwise(ids) if one in changed}
        return msgspec.structs.replace(super()._committed(commit), previous_message_ids=previous)

    def add(self, *messages: Message) -> None:
        """Commits messages that come at the end."""
        for message in messages:
            self.commit(adding(message))

    async def files(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        """Returns those that are there."""
        hashes = list(hashes)
        self.asked_files += hashes
        return {sha256: self.contents[sha256] for sha256 in hashes if sha256 in self.contents}

    async def spent(self, session_id: str) -> Spent:
        """Returns what a test says."""
        return self.spent_so_far

    def summaries(self) -> list[Message]:
        """Returns the stored summaries, in order."""
        return [message for message in self.conversation if message.compaction is not None]


class ScriptedProvider:
    """Answers each call with the next of the given items; an exception is raised, None waits for ever."""

    provider_id = "offline"
    api = "fake"
    origin = ProviderOrigin("offline")

    def __init__(self, *answers: Sequence[StreamItem | Exception | None], repairs: tuple[Repair, ...] = ()) -> None:
        """Takes an answer for each call, and what `prepare` says of every request."""
        self._answers = list(answers)
        self._repairs = repairs
        self.requests: list[ProviderRequest] = []
        self.waiting = asyncio.Event()
        """Set when a stream waits for ever."""

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """Returns a body that names model and messages."""
        body = {"model": request.model_id, "messages": [message.message_id for message in request.messages]}
        return PreparedRequest(request=request, pieces=(json.dumps(body).encode(),), repairs=self._repairs)

    def writer(self) -> FakeWriter:
        """Returns a writer of what `prepare` returns."""
        return FakeWriter(self.prepare)

    async def stream(self, sent: PreparedRequest | ProviderRequest) -> AsyncGenerator[StreamItem]:
        """Yields the next answer."""
        self.requests.append(sent.request if isinstance(sent, PreparedRequest) else sent)
        for item in self._answers.pop(0):
            if item is None:
                self.waiting.set()
                await asyncio.Event().wait()
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
