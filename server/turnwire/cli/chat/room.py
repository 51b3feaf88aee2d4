"""The chat at a terminal: one session, followed all the time, and a prompt that is always there.

Three tasks run beside the prompt. One carries out what was typed, in order; one follows the session's events; one draws
what changed, at most `FRAMES_PER_SECOND` times a second.
"""

import asyncio
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import grpc
from rich.console import RenderableType
from rich.text import Text

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import Disposition, SendMessageResponse
from turnwire.cli.chat import commands
from turnwire.cli.chat.history import open_history
from turnwire.cli.chat.open_requests import Action, OpenRequests
from turnwire.cli.chat.server_calls import ServerCalls
from turnwire.cli.chat.session_state import SessionState
from turnwire.cli.chat.terminal import Terminal
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.canvas import draw
from turnwire.cli.chat.view.transcript import Transcript
from turnwire.cli.chat.watch import Lost, follow
from turnwire.cli.connection import Connection, ConnectionProblem, describe
from turnwire.cli.visible_text import visible

FRAMES_PER_SECOND = 12

DRAWING_SHARE = 0.25
"""Of the time at most, however much there is to draw."""

CHARS_PER_FRAME = 16_384
"""Of finished text: keys are read between two frames."""

SEND_PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Before a message is sent again that may not have come through."""


async def run_room(connection: Connection, session_id: str, model: str) -> int:
    """Chats until the person ends it. The arguments are those of `run_chat`. Returns the exit code."""
    try:
        channel = connection.open_async()
    except ConnectionProblem as problem:
        print(f"turnwire: {problem}", file=sys.stderr)
        return 2
    async with channel:
        room = Room(ServerCalls(channel), model, partial(Terminal, history=open_history(os.environ)))
        try:
            await room.open(session_id)
        except grpc.aio.AioRpcError as error:
            print(f"turnwire: {describe(error)}", file=sys.stderr)
            return 1
        await room.run()
    if room.session_id:
        again = f"turnwire chat --target {shlex.quote(connection.target)} --session {room.session_id}"
        print(f"continue with: {again}")
    return 0


class Room:
    """What the person does, what the session does, and what both look like."""

    def __init__(self, calls: ServerCalls, model: str, make_terminal: Callable[..., Terminal]) -> None:
        """Args:
        calls: The server.
        model: For the messages to come: "provider/model", or "" for the session's own.
        make_terminal: Called with those arguments of `Terminal` that the room knows.
        """
        self._calls = calls
        self._model = model
        self._own_requests: set[str] = set()
        self._listed: list[str] = []
        """The sessions of the last /sessions or /search, by number."""
        self._actions: asyncio.Queue[Action] = asyncio.Queue()
        """What was typed and is not done yet. Its bound is the patience of the person who types."""
        self._acting: asyncio.Task[None] | None = None
        self._in_flight = False
        """Whether the server may be accepting a message now: then a Ctrl-C cannot take it back, and ends its turn."""
        self._interrupted = False
        self._following: asyncio.Task[None] | None = None
        """Ended by `_enter` and `run`."""
        self._background: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._lost = False
        self._state = SessionState(time.monotonic)
        self._transcript = Transcript(time.monotonic, self._own_requests)
        self._terminal = make_terminal(
            completer=commands.CommandCompleter(lambda: self._listed),
            on_line=self._take_line,
            on_interrupt=self._interrupt,
            on_reasoning=self._show_reasoning,
        )
        self._requests = OpenRequests(calls, self._terminal, self._show, self._actions.put_nowait)

    @property
    def session_id(self) -> str:
        """The session; "" when no message was sent yet."""
        return self._state.session_id

    async def open(self, session_id: str) -> None:
        """Reaches the server and the session. Raises grpc.aio.AioRpcError when one is not there."""
        await self._calls.check()
        self._say("Enter sends, /help lists commands and keys, Ctrl-D ends.")
        if session_id:
            await self._enter(session_id)

    async def run(self) -> None:
        """Runs until the person ends it."""
        tasks = [asyncio.create_task(work()) for work in (self._act, self._draw)]
        prompt = asyncio.create_task(self._terminal.run())
        try:
            done, _ = await asyncio.wait([prompt, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a task that fails ends the chat with its error
        finally:
            ended = [task for task in (*tasks, prompt, self._following, self._acting, *self._background) if task]
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    # What the person does

    def _take_line(self, text: str) -> bool:
        """Takes what was typed; False leaves it in the prompt."""
        if self._requests.take(self._state, text):
            return False  # answers are no part of the history
        call = commands.parse_call(text)
        if call is not None:
            self._actions.put_nowait(partial(self._command, call))
        elif text.strip():
            # A space in front makes a message of what would be a command.
            self._actions.put_nowait(partial(self._send, (text[1:] if text.startswith(" /") else text).rstrip()))
        return True

    def _interrupt(self) -> None:
        if self._state.turn_id:
            aborting = asyncio.create_task(self._abort(self._state.turn_id))
            self._background.add(aborting)
            aborting.add_done_callback(self._background.discard)
        elif self._in_flight:
            self._interrupted = True
        elif self._acting is not None:
            self._acting.cancel()
        else:
            self._terminal.clear_line()

    def _show_reasoning(self) -> None:
        text = self._transcript.last_reasoning
        self._show(Text(f"\n{visible(text)}" if text else "\n[no reasoning yet]", style="dim italic"))

    async def _act(self) -> None:
        """Carries out what was typed, one after the other."""
        while True:
            action = await self._actions.get()
            self._acting = asyncio.ensure_future(self._attempt(action))
            await asyncio.wait([self._acting])
            if self._acting.cancelled():
                self._say("[given up]", "yellow")
            else:
                self._acting.result()
            self._acting = None

    async def _attempt(self, action: Action) -> None:
        try:
            await action()
        except grpc.aio.AioRpcError as error:
            self._say(f"[{describe(error)}]", "red")

    async def _send(self, text: str) -> None:
        self._show(drawings.said(text))
        try:
            sent = await self._sent(text)
        except BaseException:
            self._terminal.give_back(text)
            raise
        if sent.disposition == Disposition.DISPOSITION_QUEUED:
            self._say(f"[waits at place {sent.queue_position}]")
        if sent.session_id != self.session_id:
            self._state = SessionState(time.monotonic, sent.session_id)
            self._follow(sent.resume_token)
        if sent.disposition == Disposition.DISPOSITION_STARTED:
            self._state.begin_turn(sent.turn_id)
            self._changed.set()
        if self._interrupted:
            self._interrupt()

    async def _sent(self, text: str) -> SendMessageResponse:
        """Sends a message until the server has it, or refuses it."""
        name = str(uuid.uuid4())
        self._own_requests.add(name)
        for pause in (*SEND_PAUSES_SECONDS, None):
            self._in_flight, self._interrupted = True, False
            try:
                return await self._calls.send(self.session_id, text, self._model, name)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or pause is None or self._interrupted:
                    raise
                self._say("[the server does not answer; sends again]", "yellow")
            finally:
                self._in_flight = False
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _abort(self, turn_id: str) -> None:
        # When the server cannot be reached, the watch says so.
        with suppress(grpc.aio.AioRpcError):
            await self._calls.abort(self.session_id, turn_id)

    # Commands

    async def _command(self, call: commands.Call) -> None:
        work = getattr(self, f"_do_{call.name}", None)
        if work is None:
            self._say(f"[there is no /{call.name}: see /help, or begin with a space to send it]", "yellow")
        elif call.name in ("fork", "clear", "restore", "title", "abort") and not self.session_id:
            self._say("[there is no session yet: send a message first]", "yellow")
        else:
            await work(call.argument)

    async def _do_help(self, _: str) -> None:
        self._show(*(Text.assemble((f"  {word:<22}", "bold"), does) for word, does in commands.help_lines()))

    async def _do_sessions(self, _: str) -> None:
        sessions = await self._calls.sessions()
        self._listed = [session.id for session in sessions]
        for number, session in enumerate(sessions, 1):
            self._show(drawings.listed(number, session, is_current=session.id == self.session_id))
        self._say("/resume NUMBER goes on with one." if sessions else "There is no session yet.")

    async def _do_search(self, words: str) -> None:
        found = await self._calls.search(words)
        self._listed = [hit.session_id for hit in found.hits]
        self._show(*(drawings.found(number, hit) for number, hit in enumerate(found.hits, 1)))
        self._say("/resume NUMBER goes on with the session of one." if found.hits else "Nothing is found.")
        if found.incomplete:
            self._say("The server has not indexed all messages yet: searching later may find more.", "yellow")

    async def _do_resume(self, which: str) -> None:
        if which.isdecimal() and 0 < int(which) <= len(self._listed):
            which = self._listed[int(which) - 1]
        if not which or which.isdecimal():
            self._say("[name a session: its id, or its number in /sessions]", "yellow")
        else:
            await self._enter(which)

    async def _do_new(self, _: str) -> None:
        self._leave(SessionState(time.monotonic))
        self._say("The next message begins a new session.")

    async def _do_title(self, words: str) -> None:
        await self._calls.rename(self.session_id, words)

    async def _do_model(self, model: str) -> None:
        if model and not all(model.partition("/")):
            self._say("[a model is PROVIDER/MODEL]", "yellow")
            return
        self._model = model
        self._say(f"The next messages go to {model}." if model else "The session's own model answers again.")

    async def _do_fork(self, _: str) -> None:
        await self._enter(await self._calls.fork(self.session_id))

    async def _do_clear(self, _: str) -> None:
        self._say(f"Hidden messages: {await self._calls.clear(self.session_id)}. /restore brings them back.")

    async def _do_restore(self, _: str) -> None:
        self._say(f"Messages brought back: {await self._calls.restore(self.session_id)}.")

    async def _do_reasoning(self, _: str) -> None:
        self._show_reasoning()

    async def _do_abort(self, _: str) -> None:
        await self._calls.abort(self.session_id)

    async def _do_decline(self, _: str) -> None:
        self._say("[no tool asks a question]", "yellow")  # else the question has taken it

    _do_cancel = _do_skip = _do_decline

    async def _do_exit(self, _: str) -> None:
        self._terminal.end()

    # What the session does

    async def _enter(self, session_id: str) -> None:
        """Goes on with a session: shows its last messages, then what happens in it."""
        session = await self._calls.session(session_id)
        messages, token = await self._calls.last_messages(session_id)
        state = SessionState(time.monotonic, session_id)
        state.take(session)
        self._leave(state)
        self._say(f"Session {session_id} {visible(session.title)}")
        self._transcript.recall(messages)
        self._follow(token)

    def _leave(self, state: SessionState) -> None:
        """Stops following the session, and takes the state of another one."""
        if self._following is not None:
            self._following.cancel()
            self._following = None
        before = self._transcript
        self._transcript = Transcript(time.monotonic, self._own_requests)
        self._transcript.remark(*before.take(CHARS_PER_FRAME))
        self._state, self._lost = state, False
        self._requests.update(state)

    def _follow(self, token: str) -> None:
        self._following = asyncio.create_task(self._watch(self._state, token))
        self._following.add_done_callback(self._end_with)

    def _end_with(self, task: asyncio.Task[None]) -> None:
        """Ends the chat with the error of a task that failed: awaiting it raises that."""
        if not task.cancelled() and task.exception() is not None:
            self._actions.put_nowait(lambda: task)

    async def _watch(self, state: SessionState, token: str) -> None:
        try:
            async for batch in follow(self._calls.events, state.session_id, token):
                if isinstance(batch, Lost):
                    self._lost = True
                    self._say(f"[connection lost, trying again: {batch.problem}]", "red")
                elif any(event.WhichOneof("kind") == "resync" or event.reread_if_unknown for event in batch):
                    self._say("[the server has another history of this session]", "yellow")
                    self._actions.put_nowait(partial(self._enter, state.session_id))
                    return
                else:
                    self._take_events(batch)
        except grpc.aio.AioRpcError as error:
            self._say(f"[this session cannot be followed: {describe(error)}]", "red")

    def _take_events(self, events: Sequence[SessionEvent]) -> None:
        if self._lost:
            self._lost = False
            self._say("[connected again]", "green")
        for event in events:
            self._transcript.add(*self._requests.closed(self._state, event))
            self._state.apply(event)
            self._transcript.apply(event)
        self._transcript.add(*self._requests.update(self._state))
        if self._state.deleted:
            self._leave(SessionState(time.monotonic))
            self._say("[the session was deleted; the next message begins a new one]", "yellow")
        self._changed.set()

    # What both look like

    def _show(self, *drawn: RenderableType) -> None:
        self._transcript.remark(*drawn)
        self._changed.set()

    def _say(self, text: str, style: str = "dim") -> None:
        self._show(drawings.note(text, style))

    async def _draw(self) -> None:
        """Draws what changed: what is finished for good, the rest above the prompt."""
        await self._terminal.ready.wait()
        while True:
            # What runs shows the seconds.
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self._state.turn_id else None):
                    await self._changed.wait()
            self._changed.clear()
            began = time.monotonic()
            finished = draw(self._transcript.take(CHARS_PER_FRAME), self._terminal.width)
            self._terminal.show(finished, draw(self._live(), self._terminal.width))
            if self._transcript.more:
                self._changed.set()
            took = time.monotonic() - began
            await asyncio.sleep(max(1 / FRAMES_PER_SECOND, took / DRAWING_SHARE))

    def _live(self) -> list[RenderableType]:
        live = list(self._transcript.live())
        if asked := self._requests.live(self._state):
            live += asked
        elif self._state.turn_id:
            seconds = time.monotonic() - self._state.turn_began_at
            live.append(drawings.running(seconds, self._state.queued, lost=self._lost))
        return live
