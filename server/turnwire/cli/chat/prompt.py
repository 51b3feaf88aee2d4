"""Sends what is typed, and follows the answer."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import grpc

from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT
from opencode.message.message_pb2 import DISPOSITION_QUEUED
from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.asking import answer_permission, answer_question, typed
from turnwire.cli.chat.printer import Printer
from turnwire.cli.connection import ConnectionProblem, Endpoint, explain
from turnwire_client import BlockingClient, BlockingWatch, Conversation, NotFoundError, Settings, TurnwireError, Update

ABORT_SECONDS = 2.0
"""Time that the end of a turn waits for the answer to its abort, which comes at the same time."""

RECALLED_MESSAGES = 8
"""Messages of a session that is gone on with."""

INTERRUPTED = 130


def run_chat(connection: Endpoint, session_id: str, model: str, text: str) -> int:
    """Sends one message, or asks for messages until the input ends.

    Args:
        connection: The server, and what to present to it.
        session_id: Session to continue; "" creates a new one.
        model: "provider/model"; "" leaves the choice to the server.
        text: The only message to send; "" sends standard input, or asks for messages when it is a terminal.

    Returns:
        The exit code: 0; 1 when the server cannot be used, the only message was not answered or the answer cannot be
        written; 2 for wrong options; 130 when it was interrupted.
    """
    try:
        text = _only_message(text)
    except ValueError as error:
        print(f"turnwire: {error}", file=sys.stderr)
        return 1
    try:
        with connection.client() as client:
            chat = Chat(client, session_id, model)
            return chat.answer(text) if text else chat.run(f"turnwire chat --target {connection.target}")
    except ConnectionProblem as problem:
        print(f"turnwire: {problem}", file=sys.stderr)
        return 2
    except TurnwireError as error:
        print(f"turnwire: {explain(error.code, error.message)}", file=sys.stderr)
        return 1
    except OSError as error:  # of standard output: a full disk, or a reader that has left
        print(f"turnwire: cannot write the answer: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails once more when it ends
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _only_message(text: str) -> str:
    """Returns the only message to send, from standard input too; "" to ask for messages. Raises ValueError."""
    is_read = not text and not sys.stdin.isatty()
    try:
        text = sys.stdin.read() if is_read else text
        text.encode()  # Python may keep other bytes as surrogates
    except UnicodeError:
        raise ValueError("the text is not UTF-8") from None
    if is_read and not text.strip():
        raise ValueError("nothing to send")
    return text


class Chat:
    """One session, message by message."""

    def __init__(self, client: BlockingClient, session_id: str, model: str) -> None:
        """Takes an open client, which its owner closes; the others are those of `run_chat`."""
        self._client = client
        self._session_id = session_id
        """"" before the first message of a new session."""
        self._settings: Settings = {"model": model} if model else {}
        self._printer = Printer()

    def run(self, command: str) -> int:
        """Asks for messages until the end of the input; names the command and the session to go on with. Returns 0.

        Raises:
            TurnwireError: the session cannot be read.
        """
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 - `input` gets editing and a history; it writes escape codes at once
        if self._session_id:
            self._resume()
        self._printer.line("Ctrl-C ends an answer, Ctrl-D the chat.")
        while True:
            try:
                text = typed("> ")
                if text.strip():
                    self.answer(text)
            except EOFError:
                break
            except KeyboardInterrupt:
                self._printer.line("")
            except TurnwireError as error:
                self._printer.line(f"[{error}]")
        self._printer.line(f"\ncontinue with: {command} --session {self._session_id}" if self._session_id else "")
        return 0

    def answer(self, text: str) -> int:
        """Sends a message and prints the answer. Returns 0, or 1 when it failed. Raises TurnwireError."""
        sent = self._client.send(text, self._session_id, **self._settings)
        self._session_id = sent.session_id
        if sent.disposition == DISPOSITION_QUEUED:
            self._printer.line(f"[waits at place {sent.queue_position}]")
        with self._client.watch(sent.session_id, resume_token=sent.resume_token) as watch:
            turn = self._follow(watch, sent.turn_id)
        return 1 if turn.HasField("failure") else 0

    def _resume(self) -> None:
        """Prints the last messages, and follows the turn that runs."""
        with self._client.watch(self._session_id) as watch:
            held = next(watch).conversation
            for message in held.messages[-RECALLED_MESSAGES:]:
                if message.type == MESSAGE_TYPE_ASSISTANT:
                    self._printer.message(message)
                else:
                    self._printer.line(f"> {' '.join(part.text.text for part in message.parts)}")
            if held.session is not None and held.session.active_turn_id:
                self._follow(watch, held.session.active_turn_id)

    def _follow(self, watch: BlockingWatch, turn_id: str) -> Turn:
        """Prints a turn until it ends, and asks what it needs. The first Ctrl-C aborts it, the second one gives up."""
        turn_ids, asked, held = {turn_id}, set[str](), watch.conversation
        with _first_interrupt_calls(lambda: self._abort(held)):
            self._ask(held, turn_ids, asked)
            for update in watch:
                if update.problem is not None and not sys.stdin.isatty():
                    raise update.problem  # nobody could give up
                self._printer.show(update, turn_ids)
                while (turn := self._ended(turn_id, update)) and turn.merged_into_turn_id:
                    turn_id = turn.merged_into_turn_id
                    turn_ids.add(turn_id)
                if turn is not None:
                    self._printer.end(turn)
                    return turn
                self._ask(held, turn_ids, asked)
        raise NotFoundError("the session was deleted", code=grpc.StatusCode.NOT_FOUND)

    def _ended(self, turn_id: str, update: Update) -> Turn | None:
        """Returns a turn that has ended; None while it runs. Asks the server where no event may have said so."""
        turn = update.conversation.ended_turns.get(turn_id)
        if turn is None and update.kind in ("read", "turn_ended"):
            found = self._client.turn(self._session_id, turn_id)
            return found if update.conversation.has_all_of(found) else None
        return turn

    def _ask(self, held: Conversation, turn_ids: set[str], asked: set[str]) -> None:
        """Asks what is open in turns and was not asked yet. Ctrl-C leaves it open and ends the turn."""
        requests: list[PermissionRequest | Question] = [*held.permissions.values(), *held.questions.values()]
        for request in requests:
            request_id = request.id if isinstance(request, PermissionRequest) else request.question_id
            if request.turn_id not in turn_ids or request_id in asked:
                continue
            asked.add(request_id)
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                if isinstance(request, Question):
                    answer_question(self._client, request, self._printer.line)
                elif answer_permission(self._client, request, self._printer.line):  # that closes others, too
                    asked.update(one.id for one in held.permissions.values() if one.pattern == request.pattern)
            except TurnwireError as error:  # another client answered first, or the turn has ended
                self._printer.line(f"[{error}]")
            except KeyboardInterrupt:
                self._printer.line("")
                self._abort(held)
                return
            finally:
                signal.signal(signal.SIGINT, before)

    def _abort(self, held: Conversation) -> None:
        """Ends the running turn, whichever client began it, and keeps the queue. The watch reports its end."""
        running = held.running_turn.turn_id if held.running_turn is not None else ""
        with suppress(TurnwireError):  # if the server is gone, the watch tells that, too
            self._client.abort(self._session_id, running, keep_queue=True)


@contextmanager
def _first_interrupt_calls(action: Callable[[], None]) -> Iterator[None]:
    """Calls the action at the first Ctrl-C; the second one interrupts as usual. Waits a moment for its end."""
    actions = list[threading.Thread]()

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A thread, because the handler may run in the middle of a call of the client.
        actions.append(threading.Thread(target=action, daemon=True))
        actions[0].start()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for one in actions:  # a thread that still runs when the interpreter ends prints a traceback
            one.join(ABORT_SECONDS)
