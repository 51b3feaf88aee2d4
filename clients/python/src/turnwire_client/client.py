"""The client: a connection, and the calls of a conversation."""

import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

import grpc
from google.protobuf.message import Message

from opencode.event.session_event_pb2 import EventKind
from opencode.message.content_pb2 import (
    MESSAGE_TYPE_USER,
    FinishReason,
    MessageType,
    ModelRun,
    SessionMessage,
    TokenUsage,
)
from opencode.message.message_pb2 import (
    AbortSessionRequest,
    AbortSessionResponse,
    AppendMessageRequest,
    AppendMessageResponse,
    MessagePart,
    SendMessageRequest,
    SendMessageResponse,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    AnswerQuestionRequest,
    Question,
    QuestionAction,
)
from opencode.question.question_pb2_grpc import QuestionServiceStub
from opencode.server.server_pb2 import GetServerInfoRequest, GetServerInfoResponse
from opencode.server.server_pb2_grpc import ServerServiceStub
from opencode.session.session_pb2 import (
    ForkSessionRequest,
    ListSessionsRequest,
    RevertSessionRequest,
    RevertSessionResponse,
    SessionInfo,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2 import PermissionRequest, PermissionResponse
from opencode.tool.tool_pb2_grpc import PermissionServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_UNSPECIFIED, BusyPolicy, GenerationOptions, Turn, TurnSettings
from opencode.turn.turn_service_pb2 import GetTurnRequest, StartTurnRequest, StartTurnResponse
from opencode.turn.turn_service_pb2_grpc import TurnServiceStub
from turnwire_client.answers import Answer
from turnwire_client.calls import Caller
from turnwire_client.connection import Connection, Credentials, Tls, Token
from turnwire_client.conversation import Conversation
from turnwire_client.errors import ClientClosedError, UnavailableError
from turnwire_client.requests import OnPermission, OnQuestion, Requests
from turnwire_client.tools.functions import Tool, tool_of
from turnwire_client.tools.running import ToolRunner
from turnwire_client.watching import SILENCE_SECONDS, Observer, Update, Watch

DEFAULT_ADDRESS = "127.0.0.1:50051"
CONNECT_SECONDS = 3.0
TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = 30.0

Content = str | MessagePart | Sequence[str | MessagePart]
"""Content of a message: texts and other parts."""

Stub = TypeVar("Stub")
Answered = TypeVar("Answered", bound=Message)
Function = TypeVar("Function", bound=Callable[..., Any])


class Settings(TypedDict, total=False):
    """Options of a message and its answer; what is left out is the session's, or else the server's choice."""

    model: str
    """`PROVIDER/MODEL`."""
    agent: str
    system: str
    """The system prompt; "" for none."""
    options: GenerationOptions
    busy_policy: "BusyPolicy.ValueType"
    """Behaviour when a turn is already running."""
    expected_turn_id: str
    """The turn that the user saw: BUSY_POLICY_STEER and BUSY_POLICY_INTERRUPT act on this one or on none."""
    tools: Iterable[Tool]
    """Tools of this client for this turn; left out, all that were declared with `Client.tool`."""
    metadata: Mapping[str, Any]
    """The client's own facts about the message, kept with it."""
    sender: str
    sender_name: str
    request_id: str
    """A name of the caller's choice: the same one sends the message once, also from another process."""


class Appending(TypedDict, total=False):
    """Optional fields of an appended message. The fields of answers are for type ASSISTANT only."""

    type: "MessageType.ValueType"
    """Author of the message; a user when left out."""
    metadata: Mapping[str, Any]
    """The client's own facts about the message, kept with it."""
    sender: str
    sender_name: str
    request_id: str
    """A name of the caller's choice: the same one stores the message once, also from another process."""
    model_run: ModelRun
    """Which model answered."""
    finish_reason: "FinishReason.ValueType"
    usage: TokenUsage
    cost_pico_usd: int


class Client:
    """A connection to one server, for one event loop. `BlockingClient` is the same without `await`.

        async with Client.connect("127.0.0.1:50051") as client:
            async for piece in client.ask("Hello"):
                print(piece, end="", flush=True)

    Calls that only read, or that have a name, are tried again while no server answers. All raise TurnwireError.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connect_seconds: float,
        timeout_seconds: float,
        retry_seconds: float,
        holder: str,
    ) -> None:
        """Use `connect`."""
        self._connection = connection
        self._connect_seconds = connect_seconds
        self._caller = Caller(Credentials(connection), timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        self._holder = holder or f"python {socket.gethostname()} {os.getpid()}"[:128]
        self._opened: grpc.aio.Channel | None = None
        self._tools: dict[str, Tool] = {}
        self.server = GetServerInfoResponse()
        """The server's description of itself when the client connected: features, limits, the caller."""

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
        """Returns a client for `async with`, or for `open`; nothing is sent before.

        Args:
            address: `HOST:PORT` of the server.
            token: Presented with each call; or a function that returns one, called again when it is no longer taken.
                Sent over TLS, or to this machine, and nowhere else.
            tls: True to encrypt; or a `Tls` with other authorities than those of the system, or with a client
                certificate.
            tenant: The tenant that an admin acts for.
            connect_seconds: How long to wait for a server to answer at the beginning.
            timeout_seconds: Of one attempt of a call.
            retry_seconds: How long a call is tried again; 0 for never.
            holder: The name under which this client claims tool calls, shown to people; "" for one of machine and
                process.

        Raises:
            ValueError: the connection cannot work.
        """
        return cls(
            Connection(address, token, tls, tenant),
            connect_seconds=connect_seconds,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            holder=holder,
        )

    async def open(self) -> Self:
        """Connects, and asks the server who it is. Returns the client itself.

        Raises:
            UnavailableError: no server answered in time.
            OSError: a file of `tls` cannot be read.
        """
        if self._opened is None:
            self._opened = self._connection.open()
            try:
                stub = self.stub(ServerServiceStub)
                self.server = await self._caller.call(
                    stub.GetServerInfo, GetServerInfoRequest(), retry_seconds=self._connect_seconds
                )
            except UnavailableError as error:
                await self.close()
                if not error.reason:  # gRPC's own words, which leave out whom was asked for
                    error.message = f"no server answers at {self._connection.address}: {error.message}"
                raise
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Ends the connection, and with it all watches. Idempotent."""
        channel, self._opened = self._opened, None
        if channel is not None:
            await channel.close(None)

    async def __aenter__(self) -> Self:
        """Connects; as `open`."""
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Ends the connection."""
        await self.close()

    def stub(self, kind: Callable[[grpc.aio.Channel], Stub]) -> Stub:
        """Returns the stub of a service, such as `client.stub(SessionServiceStub)`, for `call`.

        Raises:
            ClientClosedError: the client is not open.
        """
        return kind(self._channel)

    async def call(
        self,
        method: Callable[..., Awaitable[Answered]],
        request: Message,
        *,
        timeout_seconds: float | None = None,
        retry_seconds: float | None = None,
    ) -> Answered:
        """Calls any method with one answer, as the client's own calls are made.

            sessions = client.stub(SessionServiceStub)
            copy = await client.call(sessions.ForkSession, ForkSessionRequest(session_id=...))

        A request that can have a name (`request_id`) gets one, and is sent again under that name when the answer is
        lost.

        Args:
            method: Of a stub.
            request: What it takes.
            timeout_seconds: Of one attempt; None as the client was told.
            retry_seconds: How long it is tried again; None as the client was told.
        """
        return await self._caller.call(method, request, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)

    def stream(
        self, method: Callable[..., Any], request: Message, *, silence_seconds: float = SILENCE_SECONDS
    ) -> AsyncGenerator[Any, None]:
        """Yields the answers of any method with a stream of answers, once: it does not go on after a break.

            turns = client.stub(TurnServiceStub)
            async for batch in client.stream(turns.WatchTurn, WatchTurnRequest(session_id=..., turn_id=...)):
                ...

        Args:
            method: Of a stub.
            request: What it takes.
            silence_seconds: The stream counts as broken when nothing comes for so long; watches of the server say
                something every 15 seconds.
        """
        return self._caller.stream(method, request, silence_seconds=silence_seconds)

    async def send(self, content: Content, session_id: str = "", **settings: Unpack[Settings]) -> SendMessageResponse:
        """Stores a message, once, and lets a model answer it.

        Args:
            content: What it says.
            session_id: The session; "" creates one, which the answer names.
            **settings: See `Settings`.

        Returns:
            Session, message, turn and what became of the message, as soon as it is stored. `watch` goes on at its
            `resume_token`.
        """
        request = _send_request(content, session_id, settings, self._tools.values())
        return await self._caller.call(self.stub(MessageServiceStub).SendMessage, request)

    async def append(self, session_id: str, content: Content, **known: Unpack[Appending]) -> AppendMessageResponse:
        """Stores a message, once, and starts no turn: of a user, of a model that the caller asked itself, a result.

            call = MessagePart(tool_call=AppendedToolCall(name="look", call_id="c1"))
            await client.append(session_id, ["I look.", call], type=MESSAGE_TYPE_ASSISTANT)

        Args:
            session_id: The session.
            content: What it says.
            **known: See `Appending`.
        """
        facts: dict[str, Any] = {"type": MESSAGE_TYPE_USER, **known}
        if (metadata := facts.pop("metadata", None)) is not None:
            facts["metadata_json"] = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
        request = AppendMessageRequest(session_id=session_id, parts=_parts(content), **facts)
        return await self._caller.call(self.stub(MessageServiceStub).AppendMessage, request)

    async def start(self, session_id: str, message_id: str, **settings: Unpack[Settings]) -> StartTurnResponse:
        """Lets a model answer a stored user message, or go on behind the results with which the conversation ends.

        Args:
            session_id: The session.
            message_id: The user message, or the message that has the results.
            **settings: See `Settings`; those of messages are not for a stored one.

        Returns:
            The turn, as soon as it is stored. `watch` goes on at its `resume_token`.
        """
        model = _named(settings["model"]) if settings.get("model") else None
        request = StartTurnRequest(
            session_id=session_id,
            user_message_id=message_id,
            settings=TurnSettings(
                model=model and ModelName(provider_id=model[0], model_id=model[1]),
                agent=settings.get("agent"),
                system=settings.get("system"),
                options=settings.get("options"),
                tools=[tool.definition for tool in settings.get("tools", self._tools.values())],
            ),
            busy_policy=settings.get("busy_policy", BUSY_POLICY_UNSPECIFIED),
            request_id=settings.get("request_id", ""),
        )
        return await self._caller.call(self.stub(TurnServiceStub).StartTurn, request)

    def ask(
        self,
        content: Content,
        session_id: str = "",
        *,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
        **settings: Unpack[Settings],
    ) -> Answer:
        """Sends a message and returns its answer, to be iterated or awaited; runs the tools that are declared.

        Args:
            content: What it says.
            session_id: The session; "" creates one.
            on_permission: Decides whether a tool call may run. Without it the turn waits until somebody else decides.
            on_question: Answers what tools ask. Without it the turn waits until somebody else answers.
            **settings: See `Settings`.
        """
        tools = list(settings.get("tools", self._tools.values()))

        def watch(accepted: SendMessageResponse) -> Watch:
            return self.watch(
                accepted.session_id,
                resume_token=accepted.resume_token,
                tools=tools,
                on_permission=on_permission,
                on_question=on_question,
            )

        return Answer(lambda: self.send(content, session_id, **settings), watch, self.turn)

    def watch(
        self,
        session_id: str,
        *,
        resume_token: str = "",
        conversation: Conversation | None = None,
        kinds: "Sequence[EventKind.ValueType]" = (),
        deltas: bool = True,
        tools: Iterable[Tool] | None = None,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> Watch:
        """Returns the updates of a session: an asynchronous iterator that goes on by itself after every break.

        The first update has the whole conversation. Each further one has one event, which comes once, and the
        conversation with it. While the watch lasts, it runs calls of the tools that are declared with `tool`.

        Args:
            session_id: The session.
            resume_token: Where to begin instead, such as that of `send`: the conversation then has what came since.
            conversation: Of an earlier watch, to go on with.
            kinds: Only these durable kinds of events; empty for all. The conversation then lacks what the others say.
            deltas: Whether a text is told while it grows.
            tools: What calls to run, instead of those that are declared with `tool`.
            on_permission: Decides whether a tool call may run.
            on_question: Answers what tools ask.
        """
        held = conversation or Conversation(session_id)
        held.resume_token = resume_token or held.resume_token

        async def observe(stack: AsyncExitStack) -> Observer | None:
            observers: list[Observer] = []
            if runnable := list(self._tools.values() if tools is None else tools):
                runner = ToolRunner(self._channel, self._caller, session_id, runnable, self._holder)
                observers.append(await stack.enter_async_context(runner))
            if on_permission is not None or on_question is not None:
                requests = Requests(on_permission, on_question, self._answer_request)
                observers.append(await stack.enter_async_context(requests))
            return _Observers(observers) if observers else None

        return Watch(self._channel, self._caller, held, kinds=kinds, deltas=deltas, observe=observe)

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(
        self, function: None = None, /, *, name: str = "", description: str = "", timeout_seconds: float | None = None
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        /,
        *,
        name: str = "",
        description: str = "",
        timeout_seconds: float | None = None,
    ) -> Function | Callable[[Function], Function]:
        """Declares a function as a tool that models may call; a decorator, with or without arguments.

            @client.tool
            def weather(city: Annotated[str, "in English"]) -> str:
                \"\"\"Tells the weather of a city.\"\"\"

        Messages that are sent from then on offer it, and watches run its calls: a coroutine function in the event
        loop, any other one in a thread. What it returns goes to the model: a text as it is, everything else as JSON.
        What it raises goes to the model as an error.

        Args:
            function: Its parameters have type hints.
            name: What the model calls it; the function's name unless given.
            description: What the model reads about it; the docstring unless given.
            timeout_seconds: How long a call may run.

        Raises:
            TypeError: a parameter has no type hint, or one without a JSON Schema.
            ValueError: the name is not allowed or taken, or the schema is too large.
        """

        def declare(declared: Function) -> Function:
            tool = tool_of(declared, name=name, description=description, timeout_seconds=timeout_seconds)
            if tool.name in self._tools:
                raise ValueError(f"there is a tool {tool.name} already")
            self._tools[tool.name] = tool
            return declared

        return declare if function is None else declare(function)

    async def approve(self, request: PermissionRequest, *, always: bool = False) -> None:
        """Lets a tool call run; with `always`, all calls of its session that the request's patterns match."""
        await self._respond(request, "always" if always else "once", "")

    async def reject(self, request: PermissionRequest, reason: str = "") -> None:
        """Does not let a tool call run; the model reads why. May be repeated."""
        await self._respond(request, "reject", reason)

    async def answer(self, question: Question, values: Mapping[str, Any] | None = None) -> None:
        """Answers a question of a tool with what was filled in; without values, agrees to open a link."""
        content = "" if values is None else json.dumps(values, ensure_ascii=False, allow_nan=False)
        await self._close_question(question, QUESTION_ACTION_ACCEPT, content)

    async def decline(self, question: Question, reason: str = "") -> None:
        """Says no to a question of a tool. May be repeated."""
        await self._close_question(question, QUESTION_ACTION_DECLINE, "", reason)

    async def cancel(self, question: Question) -> None:
        """Puts a question of a tool away without a decision. May be repeated."""
        await self._close_question(question, QUESTION_ACTION_CANCEL, "")

    async def abort(self, session_id: str, turn_id: str = "", *, keep_queue: bool = False) -> AbortSessionResponse:
        """Ends the running turn and returns when that is stored; what the model had written is kept.

        Args:
            session_id: The session.
            turn_id: Ends this turn only; "" ends any, and is not tried again, because another one may run by then.
            keep_queue: Keeps the messages that wait; the next one starts.
        """
        request = AbortSessionRequest(session_id=session_id, expected_turn_id=turn_id, keep_queue=keep_queue)
        method = self.stub(MessageServiceStub).AbortSession
        return await self._caller.call(method, request, may_repeat=bool(turn_id))

    async def messages(self, session_id: str) -> list[SessionMessage]:
        """Returns the whole conversation, oldest first, with messages that wait at the end."""
        held = Conversation(session_id)
        await Watch(self._channel, self._caller, held).read(held)
        return [*held.messages, *held.waiting]

    async def sessions(self, request: ListSessionsRequest | None = None) -> AsyncGenerator[SessionInfo, None]:
        """Yields all sessions, page by page, the last changed first. One that changes meanwhile may come twice or not.

        Args:
            request: Filters and order.
        """
        page = ListSessionsRequest(page_size=100)
        if request is not None:
            page.MergeFrom(request)
        while True:
            listed = await self._caller.call(self.stub(SessionServiceStub).ListSessions, page)
            for session in listed.sessions:
                yield session
            if not listed.next_page_token:
                return
            page.page_token = listed.next_page_token

    async def fork(self, session_id: str, through_message_id: str = "") -> SessionInfo:
        """Copies a session, once, with its conversation up to and with a message; "" copies all of it."""
        request = ForkSessionRequest(session_id=session_id, through_message_id=through_message_id)
        return (await self._caller.call(self.stub(SessionServiceStub).ForkSession, request)).session

    async def revert(self, session_id: str, message_id: str) -> RevertSessionResponse:
        """Hides a message and all that come after it, once. RestoreSession brings them back until the next turn."""
        request = RevertSessionRequest(session_id=session_id, before_message_id=message_id)
        return await self._caller.call(self.stub(SessionServiceStub).RevertSession, request)

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns a turn: how far it is, why it ended and what it used."""
        request = GetTurnRequest(session_id=session_id, turn_id=turn_id)
        return (await self._caller.call(self.stub(TurnServiceStub).GetTurn, request)).turn

    @property
    def _channel(self) -> grpc.aio.Channel:
        if self._opened is None:
            raise ClientClosedError("the client is not open: use `async with Client.connect(...) as client`")
        return self._opened

    async def _respond(self, request: PermissionRequest, response: str, reason: str) -> None:
        message = PermissionResponse(
            session_id=request.session_id, permission_id=request.id, response=response, reason=reason
        )
        await self._caller.call(self.stub(PermissionServiceStub).RespondToPermission, message)

    async def _close_question(
        self, question: Question, action: "QuestionAction.ValueType", content_json: str, reason: str = ""
    ) -> None:
        request = AnswerQuestionRequest(
            session_id=question.session_id,
            question_id=question.question_id,
            action=action,
            content_json=content_json,
            reason=reason,
        )
        await self._caller.call(self.stub(QuestionServiceStub).AnswerQuestion, request)

    async def _answer_request(self, request: PermissionRequest | Question, decided: Any) -> None:
        """Tells the server what a function of the caller decided."""
        if isinstance(request, PermissionRequest):
            if decided is True or decided == "always":
                await self.approve(request, always=decided == "always")
            else:
                await self.reject(request)
        elif decided is None:
            await self.decline(request)
        else:
            await self.answer(request, decided if request.HasField("schema") else None)


class _Observers:
    """Several observers of one watch."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def notice(self, update: Update) -> None:
        for observer in self._observers:
            observer.notice(update)


def _send_request(content: Content, session_id: str, settings: Settings, tools: Iterable[Tool]) -> SendMessageRequest:
    request = SendMessageRequest(
        session_id=session_id,
        parts=_parts(content),
        agent=settings.get("agent"),
        system=settings.get("system"),
        options=settings.get("options"),
        busy_policy=settings.get("busy_policy", BUSY_POLICY_UNSPECIFIED),
        expected_turn_id=settings.get("expected_turn_id", ""),
        tools=[tool.definition for tool in settings.get("tools", tools)],
        sender=settings.get("sender", ""),
        sender_name=settings.get("sender_name", ""),
        request_id=settings.get("request_id", ""),
    )
    if model := settings.get("model"):
        provider, name = _named(model)
        request.model.CopyFrom(ModelSelection(provider=ProviderInfo(id=provider), model_id=name))
    if "metadata" in settings:
        request.metadata_json = json.dumps(settings["metadata"], ensure_ascii=False, allow_nan=False)
    return request


def _named(model: str) -> tuple[str, str]:
    provider, slash, name = model.partition("/")
    if not slash:
        raise ValueError(f"a model is PROVIDER/MODEL, not {model!r}")
    return provider, name


def _parts(content: Content) -> list[MessagePart]:
    given = [content] if isinstance(content, str | MessagePart) else content
    return [MessagePart(text=TextPart(text=one)) if isinstance(one, str) else one for one in given]
