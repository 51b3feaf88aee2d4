"""The way of answers out of the server: each large one has a place, and is made when it has one."""

from collections.abc import Awaitable, Callable
from functools import partial

from google.protobuf.message import Message

from turnwire.api.admission.flow import Client
from turnwire.api.admission.large_messages import LargeMessages
from turnwire.api.admission.overload import Overload
from turnwire.api.admission.sending import SMALL_BYTES, Reservation
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
        self.sending, self._cut_offs = overload.sending, overload.cut_offs
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
        if name not in READS_CONTENT:
            return await self._with_place(run, client, when_sent)
        async with self.sending.making(client, of_objects=name in MAKES_OBJECTS):
            self.sending.check(client)
            return await self._with_place(run, client, when_sent)

    async def _with_place(
        self, run: Callable[[], Awaitable[Answer]], client: Client, when_sent: WhenSent
    ) -> Message | bytes:
        answer = await run()
        if (size := size_of(answer)) <= SMALL_BYTES:
            return await self._made(answer, client)
        when_sent(partial(self.sending.release, self.reserve(size, client)))
        return await self._made(answer, client)

    async def send(self, answer: Answer, client: Client, send: Send) -> None:
        """Sends one answer of a stream, with a place while it is sent if it is large; see `StreamAnswers`."""
        if (size := size_of(answer)) <= SMALL_BYTES:
            await send(await self._made(answer, client))
            return
        shared = answer.shared if isinstance(answer, Unmade) else None
        async with self.sending.place(size, client, partial(self._cut_off, client), shared):
            if made := await self._made(answer, client):
                await send(made)

    def reserve(self, size: int, client: Client) -> Reservation:
        """Returns the place of an answer. Raises TooManyCalls: there is none."""
        return self.sending.reserve(size, client, partial(self._cut_off, client))

    async def _made(self, answer: Answer, client: Client) -> Message | bytes:
        if not isinstance(answer, Unmade):
            return answer
        if answer.answer_bytes <= OFFLOAD_BYTES:
            return answer.make()
        return await self._large_messages.run(client, answer.make)

    def _cut_off(self, client: Client) -> None:
        self._cut_offs.cut_off(client.connection, "answers that are not read")


class StreamAnswers:
    """Sends the answers of one stream. A file that comes in pieces has one place, to its last piece."""

    def __init__(self, answers: Answers, client: Client, send: Send) -> None:
        """Takes the answers of all, the client of the stream, and what writes an answer."""
        self._answers, self._client, self._send = answers, client, send
        self._file: Reservation | None = None

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
                self._file = self._answers.reserve(size, self._client)
            if self._file is not None:
                await self._send(answer)
                self._answers.sending.renew(self._file)  # who reads is not disconnected, however long the whole takes
                return
        await self._answers.send(answer, self._client, self._send)

    def close(self) -> None:
        """Takes back what a file has. Idempotent."""
        if self._file is not None:
            self._answers.sending.release(self._file)


def size_of(answer: Answer) -> int:
    """Returns the bytes of an answer, about."""
    if isinstance(answer, bytes):
        return len(answer)
    return answer.answer_bytes if isinstance(answer, Unmade) else answer.ByteSize()
