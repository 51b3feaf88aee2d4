"""The way of answers out of the server: each large one has a place, and is made when it has one."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from google.protobuf.message import Message

from turnwire.api.admission.flow import Client
from turnwire.api.admission.large_messages import LargeMessages
from turnwire.api.admission.overload import Overload
from turnwire.api.admission.sending import SMALL_BYTES
from turnwire.api.rights import MAKES_OBJECTS, READS_CONTENT
from turnwire.core.watches.unmade import Unmade

OFFLOAD_BYTES = 256 * 1024
"""Size from which responses are encoded on a worker thread."""

Answer = Message | bytes | Unmade
"""The return types of methods."""

WhenSent = Callable[[Callable[[], None]], object]
"""Takes a function that is called when the call has ended and its answer is no longer kept."""


Send = Callable[[Message | bytes], Awaitable[None]]


class Answers:
    """Bounds the answers of all listeners. Used on the event loop only."""

    def __init__(self, overload: Overload, large_messages: LargeMessages) -> None:
        """Takes what counts them, and what makes large ones."""
        self._overload = overload
        self._large_messages = large_messages

    async def one(
        self, name: str, run: Callable[[], Awaitable[Answer]], client: Client, when_sent: WhenSent
    ) -> Message | bytes:
        """Returns the answer of a method with one answer. It has a place until it is sent if it is large.

        Args:
            name: The name of the method.
            run: Returns its answer.
            client: The client of the call.
            when_sent: Tells when the answer is sent.

        Raises:
            TooManyCalls: there is no place.
        """
        sending = self._overload.sending
        if name not in READS_CONTENT:
            return await self._with_place(run, client, when_sent)
        async with sending.making(client, of_objects=name in MAKES_OBJECTS):
            sending.check(client)
            return await self._with_place(run, client, when_sent)

    async def _with_place(
        self, run: Callable[[], Awaitable[Answer]], client: Client, when_sent: WhenSent
    ) -> Message | bytes:
        sending = self._overload.sending
        answer = await run()
        if (size := size_of(answer)) <= SMALL_BYTES:
            return await self._made(answer, client)
        reservation = sending.reserve(size, client, partial(self._cut_off, client))
        when_sent(lambda: sending.release(reservation))
        return await self._made(answer, client)

    def stream(self, client: Client, send: Send) -> "StreamAnswers":
        """Returns what sends the answers of one stream.

        Args:
            client: The client of the stream.
            send: Writes an answer; returns when the next may be written.
        """
        return StreamAnswers(self, client, send)

    async def send(self, answer: Answer, client: Client, send: Send) -> None:
        """Sends one answer of a stream, with a place while it is sent if it is large; see `stream`."""
        if (size := size_of(answer)) <= SMALL_BYTES:
            await send(await self._made(answer, client))
            return
        shared = answer.shared if isinstance(answer, Unmade) else None
        async with self._overload.sending.place(size, client, partial(self._cut_off, client), shared):
            if made := await self._made(answer, client):
                await send(made)

    def keep(self, size: int, client: Client) -> "Kept":
        """Gives what is sent in pieces a place. Raises TooManyCalls: there is none."""
        sending = self._overload.sending
        reservation = sending.reserve(size, client, partial(self._cut_off, client))
        return Kept(partial(sending.renew, reservation), partial(sending.release, reservation))

    async def _made(self, answer: Answer, client: Client) -> Message | bytes:
        if not isinstance(answer, Unmade):
            return answer
        if answer.answer_bytes <= OFFLOAD_BYTES:
            return answer.make()
        return await self._large_messages.run(client, answer.make)

    def _cut_off(self, client: Client) -> None:
        self._overload.cut_offs.cut_off(client.connection, "answers that are not read")


class Kept(NamedTuple):
    """The place of what is sent in pieces."""

    renew: Callable[[], None]
    """Called when a piece was sent: a client that reads is not disconnected, however long the whole takes."""
    take_back: Callable[[], None]


class StreamAnswers:
    """Sends the answers of one stream. A file that comes in pieces has one place, to its last piece."""

    def __init__(self, answers: Answers, client: Client, send: Send) -> None:
        """Called by `Answers.stream`."""
        self._answers, self._client, self._send = answers, client, send
        self._file: Kept | None = None

    async def send(self, answer: Answer) -> None:
        """Sends the next answer; one that is empty when it is made is not sent.

        Raises:
            TooManyCalls: there is no place, and no memory to wait for one.
        """
        if isinstance(answer, bytes) and len(answer) <= SMALL_BYTES:  # nearly all
            await self._send(answer)
            return
        if not isinstance(answer, bytes | Unmade):
            if size := getattr(answer, "size_bytes", 0):  # the first piece of a file
                self._file = self._answers.keep(size, self._client)
            if self._file is not None:
                await self._send(answer)
                self._file.renew()
                return
        await self._answers.send(answer, self._client, self._send)

    def close(self) -> None:
        """Takes back what a file has. Idempotent."""
        if self._file is not None:
            self._file.take_back()


def size_of(answer: Answer) -> int:
    """Returns the bytes of an answer, about."""
    if isinstance(answer, bytes):
        return len(answer)
    return answer.answer_bytes if isinstance(answer, Unmade) else answer.ByteSize()
