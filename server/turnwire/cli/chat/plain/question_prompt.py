"""Asks the person at the terminal what a running tool wants to know."""

import sys
from collections.abc import Callable, Iterable

import grpc
from rich.console import Console

from opencode.event.session_event_pb2 import SessionEvent
from opencode.question.question_pb2 import QUESTION_ACTION_DECLINE, AnswerQuestionRequest, Question
from opencode.question.question_pb2_grpc import QuestionServiceStub
from turnwire.cli.chat.asking.filling import Filling, Reply
from turnwire.cli.chat.plain.permission_prompt import NOBODY
from turnwire.cli.connection import describe
from turnwire.cli.visible_text import visible


class QuestionPrompt:
    """Answers the questions of one turn, each once. When nobody can be asked, they are declined."""

    def __init__(
        self, console: Console, questions: QuestionServiceStub, ask: Callable[[str], str] | None = None
    ) -> None:
        """Args:
        console: Where the question is shown.
        questions: The service that takes answers.
        ask: As in `PermissionPrompt`.
        """
        self._console = console
        self._questions = questions
        self._ask = ask if ask is not None or not sys.stdin.isatty() else input
        self._seen: set[str] = set()
        self.asking = False
        """As in `PermissionPrompt`."""

    def answer(self, events: Iterable[SessionEvent]) -> None:
        """Asks each question in the events. Returns when all of them are answered."""
        for event in events:
            kind = event.WhichOneof("kind")
            if kind == "question_asked":
                self._answer(event.question_asked.question)
            elif kind == "question_snapshot":
                self._answer(event.question_snapshot.question)

    def _answer(self, question: Question) -> None:
        if question.question_id in self._seen:
            return
        self._seen.add(question.question_id)
        self._print(f"[{question.source} asks]", "yellow")
        self._print(question.prompt)
        if question.WhichOneof("form") == "link":
            self._print(f"the address: {question.link.url}")
        filling = Filling(question)
        while True:
            try:
                self.asking = True
                reply = self._typed(filling)
            except KeyboardInterrupt:
                self._console.print()
                return
            finally:
                self.asking = False
            if self._is_taken(filling, reply):
                return

    def _is_taken(self, filling: Filling, reply: Reply) -> bool:
        """Sends the answer; returns False when the server wants another one."""
        question = filling.question
        request = AnswerQuestionRequest(
            session_id=question.session_id,
            question_id=question.question_id,
            action=reply.action,
            content_json=reply.content_json,
            reason=reply.reason,
        )
        try:
            self._questions.AnswerQuestion(request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT and self._ask is not None:
                filling.refuse(describe(error))
                return False
            # another client answered first, or the turn has ended
            self._print(f"[{describe(error)}]", "dim")
        return True

    def _typed(self, filling: Filling) -> Reply:
        """Returns what the person answers, field by field. The end of the input declines, as it denies permissions."""
        if self._ask is None:
            return Reply(QUESTION_ACTION_DECLINE, reason=NOBODY)
        reply = None
        while reply is None:
            if filling.problem:
                self._print(filling.problem, "red")
            self._show(filling)
            try:
                reply = filling.take(self._ask(visible(f"{filling.how}: ").replace("\n", " ")))
            except EOFError:
                reply = Reply(QUESTION_ACTION_DECLINE)
        return reply

    def _show(self, filling: Filling) -> None:
        """Prints the field that is asked; all that was filled in when none is."""
        field = filling.field
        if field is None:
            for place, (title, value) in enumerate(filling.filled, 1):
                self._print(f"  {place} {title}: {value or '(left out)'}")
            return
        self._print(f"{filling.place}: {field.title} ({field.expects})", "yellow")
        if field.description:
            self._print(f"  {field.description}")
        for place, (value, title) in enumerate(field.choices, 1):
            words = title if title == value else f"{title} ({value})"
            self._print(f"  {place} {words}" if field.has_numbers else f"  {words}")

    def _print(self, text: str, style: str = "none") -> None:
        self._console.out(visible(text), style=style, highlight=False)
