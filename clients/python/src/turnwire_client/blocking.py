"""The client without asyncio: the same calls, which wait. One thread runs an event loop with a `Client` in it."""

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message

from opencode.event.session_event_pb2 import EventKind
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import AbortSessionResponse, AppendMessageResponse, SendMessageResponse
from opencode.question.question_pb2 import Question
from opencode.server.server_pb2 import GetServerInfoResponse
from opencode.session.session_pb2 import ListSessionsRequest, RevertSessionResponse, SessionInfo
from opencode.tool.tool_pb2 import PermissionRequest
from opencode.turn.turn_pb2 import Turn
from opencode.turn.turn_service_pb2 import StartTurnResponse
from turnwire_client.answers import Answer
from turnwire_client.client import (
    CONNECT_SECONDS,
    DEFAULT_ADDRESS,
    RETRY_SECONDS,
    TIMEOUT_SECONDS,
    Appending,
    Client,
    Content,
    Settings,
)
from turnwire_client.connection import Tls, Token
from turnwire_client.conversation import Conversation
from turnwire_client.errors import ClientClosedError
from turnwire_client.requests import OnPermission, OnQuestion
from turnwire_client.watching import Update, Watch

Item = TypeVar("Item")
Value = TypeVar("Value")
Stub = TypeVar("Stub")
Answered = TypeVar("Answered", bound=Message)
Function = TypeVar("Function", bound=Callable[..., Any])

_END: Any = object()

Ending = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """A thread with an event loop, for all threads to use. It ends with `close`, or when nobody holds it any more."""

    def __init__(self) -> None:
        """Starts the thread, which does not keep the interpreter from ending."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_report)
        self.endings: set[Ending] = set()
        """Ending of each iteration that is not over. Changed in the thread itself alone, which ends what is left."""
        serve = threading.Thread(target=_serve, args=(self._loop, self.endings), name="turnwire-client", daemon=True)
        self._thread = serve
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._loop, self._thread)

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Runs a coroutine in the loop and returns what it returns. An interrupt cancels it.

        Raises:
            ClientClosedError: the thread has ended, or ends meanwhile.
            RuntimeError: called in the thread itself, which would wait for ever.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a tool that is a coroutine function cannot wait for the client that runs it")
        if not self._end.alive:
            coroutine.close()
            raise ClientClosedError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosedError("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def begin(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine in the loop and does not wait for it; nothing once the thread has ended."""
        if self._end.alive:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        else:
            coroutine.close()

    def close(self) -> None:
        """Cancels what runs and ends the thread. Idempotent."""
        self._end()


class Waiting(Generic[Item]):
    """An iterator that waits for each item of an asynchronous one."""

    def __init__(self, thread: LoopThread, items: AsyncIterator[Item], aclose: Ending):
        """Takes what runs in the thread, and how it ends."""
        self._thread = thread
        self._items = items
        self._aclose = aclose
        self._is_over = False

    def __iter__(self) -> Self:
        """Returns itself."""
        return self

    def __next__(self) -> Item:
        """Returns the next item; raises what the asynchronous iterator raises."""
        if self._is_over:
            raise StopIteration

        async def step() -> Item:
            endings = self._thread.endings
            endings.add(self._aclose)
            item: Item = _END
            try:
                item = await anext(self._items, _END)
            finally:
                if item is _END:  # or an error: it is over
                    endings.discard(self._aclose)
            return item

        try:
            item = self._thread.run(step())
        except BaseException:
            self._is_over = True
            raise
        if item is _END:
            self._is_over = True
            raise StopIteration
        return item

    def close(self) -> None:
        """Ends the iteration. Idempotent."""
        self._is_over = True
        self._thread.run(_ended(self._thread.endings, self._aclose))

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the iteration."""
        self.close()

    def __del__(self) -> None:
        """Ends an iteration that was left with `break`."""
        if not self._is_over:
            self._thread.begin(_ended(self._thread.endings, self._aclose))


class BlockingWatch(Waiting[Update]):
    """The updates of one session. As `Watch`; for one thread at a time."""

    def __init__(self, thread: LoopThread, watch: Watch) -> None:
        """Takes a watch that nobody else uses."""
        super().__init__(thread, watch, watch.aclose)
        self.conversation: Conversation = watch.conversation
        """The conversation as it is now. It changes only while the next update is waited for."""


class BlockingAnswer(Waiting[str]):
    """The answer to a message: iterate it for its text piece by piece, or call `result`. As `Answer`."""

    def __init__(self, thread: LoopThread, answer: Answer) -> None:
        """Takes an answer that nobody else uses."""
        super().__init__(thread, answer, answer.aclose)
        self._answer = answer

    def result(self) -> str:
        """Waits for the whole answer and returns its text. Raises TurnFailedError when the turn failed."""
        for _ in self:
            pass
        return self._answer.text

    @property
    def text(self) -> str:
        """The text so far."""
        return self._answer.text

    @property
    def accepted(self) -> SendMessageResponse | None:
        """The server's response once it has stored the message; None before that."""
        return self._answer.accepted

    @property
    def turn(self) -> Turn | None:
        """The turn, with its cost, once it has ended."""
        return self._answer.turn


class BlockingClient:
    """A connection to one server, for programs without asyncio and for notebooks. Safe to use from several threads.

        with BlockingClient.connect("127.0.0.1:50051") as client:
            for piece in client.ask("Hello"):
                print(piece, end="", flush=True)

    All calls are those of `Client`, where they are described; each waits until it is done.
    """

    def __init__(self, thread: LoopThread, client: Client) -> None:
        """Use `connect`."""
        self._thread = thread
        self._client = client

    @classmethod
    def connect(
        cls,
        address: str = DEFAULT_ADDRESS,
        *,
        token: Token = "",
        tls: bool | Tls = False,
        tenant: str = "",
        connect_seconds: float = CONNECT_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        holder: str = "",
    ) -> Self:
        """Connects at once, and returns the client; the arguments are those of `Client.connect`.

        Raises:
            ValueError: the connection cannot work.
            UnavailableError: no server answered in time.
        """
        client = Client.connect(
            address,
            token=token,
            tls=tls,
            tenant=tenant,
            connect_seconds=connect_seconds,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            holder=holder,
        )
        thread = LoopThread()
        try:
            thread.run(client.open())
        except BaseException:
            thread.close()
            raise
        return cls(thread, client)

    def close(self) -> None:
        """Ends the connection, all that waits for it, and the thread. Idempotent."""
        try:
            self._thread.run(self._client.close())
        except ClientClosedError:
            return
        self._thread.close()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the connection."""
        self.close()

    @property
    def server(self) -> GetServerInfoResponse:
        """The server's description of itself when the client connected."""
        return self._client.server

    def send(self, content: Content, session_id: str = "", **settings: Unpack[Settings]) -> SendMessageResponse:
        """Stores a message, once, and lets a model answer it. As `Client.send`."""
        return self._thread.run(self._client.send(content, session_id, **settings))

    def ask(
        self,
        content: Content,
        session_id: str = "",
        *,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
        **settings: Unpack[Settings],
    ) -> BlockingAnswer:
        """Sends a message and returns its answer. As `Client.ask`; the functions are called in the client's thread."""
        answer = self._client.ask(content, session_id, on_permission=on_permission, on_question=on_question, **settings)
        return BlockingAnswer(self._thread, answer)

    def watch(
        self,
        session_id: str,
        *,
        resume_token: str = "",
        conversation: Conversation | None = None,
        kinds: "Sequence[EventKind.ValueType]" = (),
        deltas: bool = True,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> BlockingWatch:
        """Returns the updates of a session. As `Client.watch`; the functions are called in the client's thread."""
        watch = self._client.watch(
            session_id,
            resume_token=resume_token,
            conversation=conversation,
            kinds=kinds,
            deltas=deltas,
            on_permission=on_permission,
            on_question=on_question,
        )
        return BlockingWatch(self._thread, watch)

    def tool(
        self, *, name: str = "", description: str = "", timeout_seconds: float | None = None
    ) -> Callable[[Function], Function]:
        """Declares a function as a tool, as a decorator with brackets: `@client.tool()`. As `Client.tool`.

        Calls run while an answer or a watch of this client is iterated, each in a thread of its own.
        """
        return self._client.tool(name=name, description=description, timeout_seconds=timeout_seconds)

    def approve(self, request: PermissionRequest, *, always: bool = False) -> None:
        """Lets a tool call run. As `Client.approve`."""
        self._thread.run(self._client.approve(request, always=always))

    def reject(self, request: PermissionRequest, reason: str = "") -> None:
        """Does not let a tool call run. As `Client.reject`."""
        self._thread.run(self._client.reject(request, reason))

    def answer(self, question: Question, values: Mapping[str, Any] | None = None) -> None:
        """Answers a question of a tool. As `Client.answer`."""
        self._thread.run(self._client.answer(question, values))

    def decline(self, question: Question, reason: str = "") -> None:
        """Says no to a question of a tool. As `Client.decline`."""
        self._thread.run(self._client.decline(question, reason))

    def cancel(self, question: Question) -> None:
        """Puts a question of a tool away. As `Client.cancel`."""
        self._thread.run(self._client.cancel(question))

    def append(self, session_id: str, content: Content, **known: Unpack[Appending]) -> AppendMessageResponse:
        """Stores a message without a turn. As `Client.append`."""
        return self._thread.run(self._client.append(session_id, content, **known))

    def start(self, session_id: str, message_id: str, **settings: Unpack[Settings]) -> StartTurnResponse:
        """Lets a model answer what is stored. As `Client.start`."""
        return self._thread.run(self._client.start(session_id, message_id, **settings))

    def abort(self, session_id: str, turn_id: str = "", *, keep_queue: bool = False) -> AbortSessionResponse:
        """Ends the running turn. As `Client.abort`."""
        return self._thread.run(self._client.abort(session_id, turn_id, keep_queue=keep_queue))

    def messages(self, session_id: str) -> list[SessionMessage]:
        """Returns the whole conversation. As `Client.messages`."""
        return self._thread.run(self._client.messages(session_id))

    def sessions(self, request: ListSessionsRequest | None = None) -> Waiting[SessionInfo]:
        """Returns an iterator of all sessions. As `Client.sessions`."""
        sessions = self._client.sessions(request)
        return Waiting(self._thread, sessions, sessions.aclose)

    def fork(self, session_id: str, through_message_id: str = "") -> SessionInfo:
        """Copies a session. As `Client.fork`."""
        return self._thread.run(self._client.fork(session_id, through_message_id))

    def revert(self, session_id: str, message_id: str) -> RevertSessionResponse:
        """Hides a message and all that come after it. As `Client.revert`."""
        return self._thread.run(self._client.revert(session_id, message_id))

    def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns a turn. As `Client.turn`."""
        return self._thread.run(self._client.turn(session_id, turn_id))

    def stub(self, kind: Callable[[grpc.aio.Channel], Stub]) -> Stub:
        """Returns the stub of a service for `call`. As `Client.stub`."""
        return self._client.stub(kind)

    def call(
        self,
        method: Callable[..., Awaitable[Answered]],
        request: Message,
        *,
        timeout_seconds: float | None = None,
        retry_seconds: float | None = None,
    ) -> Answered:
        """Calls any method with one answer. As `Client.call`."""
        return self._thread.run(
            self._client.call(method, request, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        )


async def _ended(endings: set[Ending], aclose: Ending) -> None:
    """Ends an iteration."""
    endings.discard(aclose)
    await aclose()


def _serve(loop: asyncio.AbstractEventLoop, endings: set[Ending]) -> None:
    """Runs a loop until it is stopped, then cancels what is left."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        for aclose in list(endings):  # the outermost generators, which end those within
            loop.run_until_complete(aclose())
        endings.clear()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stops a loop and waits for its thread."""
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports what went wrong in the loop.

    gRPC wakes all event loops of a process by one socket, and those that come too late find it empty. That is harmless:
    https://github.com/grpc/grpc/issues/25364
    """
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
