"""Sends messages and prints their answers as plain text."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import grpc
from rich.console import Console

from opencode.message.message_pb2 import (
    AbortSessionRequest,
    Disposition,
    MessagePart,
    SendMessageRequest,
    StreamMessageRequest,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.question.question_pb2_grpc import QuestionServiceStub
from opencode.tool.tool_pb2_grpc import PermissionServiceStub
from turnwire.cli.chat.plain.permission_prompt import PermissionPrompt
from turnwire.cli.chat.plain.question_prompt import QuestionPrompt
from turnwire.cli.chat.plain.turn_printer import TurnPrinter
from turnwire.cli.connection import describe


class Lines:
    """One session, line by line."""

    def __init__(self, channel: grpc.Channel, target: str, session_id: str, model: str) -> None:
        """Takes an open channel; the arguments are those of `run_chat`."""
        self._messages = MessageServiceStub(channel)
        self._permissions = PermissionServiceStub(channel)
        self._questions = QuestionServiceStub(channel)
        self._target = target
        self._session_id = session_id
        self._model = selection(model)
        self._console = Console(highlight=False)
        self._aside = self._console if sys.stdout.isatty() else Console(stderr=True, highlight=False)
        """For all that is not the answer: a program that reads the output gets the answer alone."""

    def run(self) -> int:
        """Asks for messages until the end of the input."""
        self._aside.print("Ctrl-D exits, Ctrl-C ends an answer.", style="dim")
        while True:
            try:
                text = input("> ")
            except EOFError:
                self._console.print()
                break
            if text.strip():
                self.answer(text)
        if self._session_id:
            again = f"turnwire chat --target {self._target} --session {self._session_id}"
            self._aside.print(f"continue with: {again}", style="dim", soft_wrap=True)
        return 0

    def answer(self, text: str) -> int:
        """Sends a message and prints the answer. Returns 0, or 1 when it failed."""
        request = SendMessageRequest(
            session_id=self._session_id, parts=[MessagePart(text=TextPart(text=text))], model=self._model
        )
        printer = TurnPrinter(self._console, self._aside)
        prompts = (PermissionPrompt(self._aside, self._permissions), QuestionPrompt(self._aside, self._questions))
        try:
            with _first_interrupt_calls(self._abort, lambda: any(prompt.asking for prompt in prompts)):
                for response in self._messages.StreamMessage(StreamMessageRequest(message=request)):
                    if response.HasField("accepted"):
                        self._session_id = response.accepted.session_id
                        if response.accepted.disposition == Disposition.DISPOSITION_QUEUED:
                            self._aside.print(f"queued at position {response.accepted.queue_position}", style="dim")
                    printer.show(response.events)
                    for event in response.events:
                        for prompt in prompts:
                            prompt.answer((event,))
        except grpc.RpcError as error:
            print(f"turnwire: {describe(error)}", file=sys.stderr)
            return 1
        return 0 if printer.ended and not printer.ended.HasField("failure") else 1

    def _abort(self) -> None:
        """Asks the server to end the turn; the stream reports the end."""
        # A thread, because a signal handler may interrupt gRPC while it holds the channel's lock.
        threading.Thread(target=self._call_abort, args=(self._session_id,), daemon=True).start()

    def _call_abort(self, session_id: str) -> None:
        # If the server is gone, the stream has failed too, and that is reported.
        with suppress(grpc.RpcError, ValueError):
            self._messages.AbortSession(AbortSessionRequest(session_id=session_id))


def selection(model: str) -> ModelSelection | None:
    """Returns the model that "provider/model" names; None for ""."""
    provider_id, _, model_id = model.partition("/")
    return ModelSelection(provider=ProviderInfo(id=provider_id), model_id=model_id) if model else None


@contextmanager
def _first_interrupt_calls(action: Callable[[], None], is_asking: Callable[[], bool]) -> Iterator[None]:
    """Runs the action on the first Ctrl-C; the second one interrupts as usual, and so does the first in a question."""

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        action()
        if is_asking():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
