"""Asks the person at the terminal whether a tool may run."""

import sys
from collections.abc import Callable, Iterable

import grpc
from rich.console import Console

from opencode.event.session_event_pb2 import SessionEvent
from opencode.tool.tool_pb2 import PermissionRequest, PermissionResponse
from opencode.tool.tool_pb2_grpc import PermissionServiceStub
from turnwire.cli.connection import describe
from turnwire.cli.visible_text import visible

QUESTION = "allow it? [y]es, [A]lways in this session, or no and why (? shows all of it): "

NOBODY = "nobody is at the terminal to be asked"
"""The reason that the model reads when the input is not a terminal."""


class PermissionPrompt:
    """Answers the permission requests of one turn, each once. When nobody can be asked, the answer is no."""

    def __init__(
        self, console: Console, permissions: PermissionServiceStub, ask: Callable[[str], str] | None = None
    ) -> None:
        """Args:
        console: Where the question is shown.
        permissions: The service that takes answers.
        ask: Shows a line and returns what was typed, raising EOFError at the end of the input; None asks at the
            terminal when there is one.
        """
        self._console = console
        self._permissions = permissions
        self._ask = ask if ask is not None or not sys.stdin.isatty() else input
        self._seen: set[str] = set()
        self.asking = False
        """True while a person is asked. Then a KeyboardInterrupt leaves the question unanswered: the turn is ended."""

    def answer(self, events: Iterable[SessionEvent]) -> None:
        """Asks about each permission request in the events. Returns when all of them are answered."""
        for event in events:
            kind = event.WhichOneof("kind")
            if kind == "permission_asked":
                self._answer(event.permission_asked.permission)
            elif kind == "permission_snapshot":
                self._answer(event.permission_snapshot.permission)

    def _answer(self, request: PermissionRequest) -> None:
        if request.id in self._seen:
            return
        self._seen.add(request.id)
        self._console.out(f"[asks to run {visible(request.title)}]", style="yellow", highlight=False)
        try:
            self.asking = True
            word, reason = self._typed(request) if self._ask is not None else ("reject", NOBODY)
        except KeyboardInterrupt:
            self._console.print()
            return
        finally:
            self.asking = False
        answer = PermissionResponse(
            session_id=request.session_id, permission_id=request.id, response=word, reason=reason
        )
        try:
            self._permissions.RespondToPermission(answer)
        except grpc.RpcError as error:
            # another client answered first, or the turn has ended
            self._console.out(f"[{visible(describe(error))}]", style="dim", highlight=False)

    def _typed(self, request: PermissionRequest) -> tuple[str, str]:
        """Returns the answer's word and the reason."""
        typed = "?"
        while typed in ("?", "a"):  # a small a is no answer in any of the clients
            try:
                typed = self._ask(QUESTION).strip() if self._ask is not None else ""
            except EOFError:
                typed = ""
            if typed in ("?", "a"):
                self._console.out(visible(request.metadata_json or request.title), highlight=False)
        match typed.lower():
            case "y" | "yes":
                return "once", ""
            case "a" | "always":  # a capital A
                return "always", ""
            case "" | "n" | "no":
                return "reject", ""
        return "reject", typed[:4096]
