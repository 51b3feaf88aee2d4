"""The answer to one message, as text that comes piece by piece."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from typing import Any, Self

import grpc

from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, Part, SessionMessage
from opencode.message.message_pb2 import SendMessageResponse
from opencode.turn.turn_pb2 import Turn
from turnwire_client.conversation import Conversation
from turnwire_client.errors import NotFoundError, TurnFailedError
from turnwire_client.watching import Update, Watch

BETWEEN_PARTS = "\n\n"
"""Yielded between texts of one answer that are parts of their own, such as before and after a tool call."""


class Pieces:
    """The new text of growing parts: each byte once, whether it comes in deltas, snapshots or whole parts."""

    def __init__(self) -> None:
        """Begins with nothing shown."""
        self._shown: dict[tuple[str, int], int] = {}
        """Bytes (UTF-8) of each part that were yielded."""

    def of_delta(self, part: Part, delta: Any) -> Iterator[str]:
        """Yields what a delta adds to a text."""
        place = delta.message_id, delta.part_index
        shown = self._shown.get(place, 0)
        if part.HasField("text") and delta.offset <= shown < delta.end_offset:
            text = delta.text
            if delta.offset < shown:
                text = text.encode()[shown - delta.offset :].decode(errors="replace")
            yield from self._next(place, text, delta.end_offset)

    def of_part(self, message_id: str, part: Part) -> Iterator[str]:
        """Yields what is new of a text."""
        if part.HasField("text"):
            data, place = part.text.text.encode(), (message_id, part.index)
            shown = self._shown.get(place, 0)
            if shown < len(data):
                yield from self._next(place, data[shown:].decode(errors="replace"), len(data))

    def of_message(self, message: SessionMessage) -> Iterator[str]:
        """Yields what is new of all texts of a message."""
        for part in message.parts:
            yield from self.of_part(message.message_id, part)

    def _next(self, place: tuple[str, int], text: str, end: int) -> Iterator[str]:
        if self._shown and place not in self._shown:
            yield BETWEEN_PARTS
        self._shown[place] = end
        yield text


class Answer:
    """The answer to a message that `Client.ask` sends.

    Iterate it for its text, piece by piece, as the model writes it; or await it for all of the text. The message is
    sent when either begins. Giving up the iteration does not end the answer: `Client.abort` does.
    """

    def __init__(
        self,
        send: Callable[[], Awaitable[SendMessageResponse]],
        watch: Callable[[SendMessageResponse], Watch],
        find_turn: Callable[[str, str], Awaitable[Turn]],
    ) -> None:
        """Args:
        send: Sends the message, once.
        watch: Watches its session from the message on.
        find_turn: Reads the turn of a session and an id.
        """
        self._send = send
        self._watch = watch
        self._find_turn = find_turn
        self._pieces = Pieces()
        self._followed: set[str] = set()
        """The turns whose text is shown: that of the message, and the one that it joined."""
        self._iterator: AsyncGenerator[str, None] | None = None
        self.accepted: SendMessageResponse | None = None
        """The server's response once it has stored the message; None before that."""
        self.turn: Turn | None = None
        """The turn, with its cost, once it has ended."""
        self.text = ""
        """The text so far."""

    def __aiter__(self) -> Self:
        """Returns itself."""
        return self

    async def __anext__(self) -> str:
        """Returns the next piece of text.

        Raises:
            TurnwireError: the message was not taken.
            TurnFailedError: the turn ended with a failure; `text` has what came.
        """
        if self._iterator is None:
            self._iterator = self._run()
        return await anext(self._iterator)

    def __await__(self) -> Generator[Any, None, str]:
        """Returns all of the text when the answer is complete. Raises as `__anext__`."""
        return self._all().__await__()

    async def aclose(self) -> None:
        """Stops following the answer, which goes on. Idempotent."""
        if self._iterator is not None:
            await self._iterator.aclose()

    async def _all(self) -> str:
        async for _ in self:
            pass
        return self.text

    async def _run(self) -> AsyncGenerator[str, None]:
        self.accepted = await self._send()
        self._followed = {self.accepted.turn_id}
        async with self._watch(self.accepted) as updates:
            async for update in updates:
                for piece in self._new(update):
                    self.text += piece
                    yield piece
                if await self._has_ended(update):
                    break
        if self.turn is None:
            raise NotFoundError("the session was deleted", code=grpc.StatusCode.NOT_FOUND, reason="SESSION_NOT_FOUND")
        if self.turn.HasField("failure"):
            raise TurnFailedError(self.turn)

    async def _has_ended(self, update: Update) -> bool:
        """Returns whether the answer is over; follows a message into the turn that it joins."""
        if update.kind == "turn_ended":
            assert update.event is not None
            ended = [update.event.turn_ended.turn]
        elif update.kind == "read":  # the end may be among what no event told
            session_id = update.conversation.session_id
            ended = [await self._find_turn(session_id, turn_id) for turn_id in sorted(self._followed)]
        else:
            return False
        for turn in ended:
            if turn.turn_id not in self._followed or not update.conversation.has_all_of(turn):
                continue
            if not turn.merged_into_turn_id:
                self.turn = Turn()
                self.turn.CopyFrom(turn)
            elif turn.merged_into_turn_id not in self._followed:
                self._followed.add(turn.merged_into_turn_id)
                joined = await self._find_turn(update.conversation.session_id, turn.merged_into_turn_id)
                if update.conversation.has_all_of(joined):
                    self.turn = joined
        return self.turn is not None

    def _new(self, update: Update) -> Iterator[str]:
        """Yields what an update adds to the text of the answer."""
        event, held = update.event, update.conversation
        match update.kind:
            case "part_delta":
                assert event is not None
                delta = event.part_delta
                part = held.held_part(delta.message_id, delta.part_index)
                if part is not None and self._is_mine(held, delta.message_id):
                    yield from self._pieces.of_delta(part, delta)
            case "part_finished":
                assert event is not None
                if self._is_mine(held, event.part_finished.message_id):
                    yield from self._pieces.of_part(event.part_finished.message_id, event.part_finished.part)
            case "message_snapshot":
                assert event is not None
                if self._is_mine(held, event.message_snapshot.message.message_id):
                    yield from self._pieces.of_message(event.message_snapshot.message)
            case "read":
                for message in held.messages:
                    if self._is_mine(held, message.message_id):
                        yield from self._pieces.of_message(message)

    def _is_mine(self, held: Conversation, message_id: str) -> bool:
        message = held.held_message(message_id)
        return message is not None and message.type == MESSAGE_TYPE_ASSISTANT and message.turn_id in self._followed
