"""The commands of the prompt: their words, and how a line is read."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document


class Command(NamedTuple):
    """One command."""

    name: str
    argument: str
    """What follows the name, for people; "" for nothing."""
    does: str


COMMANDS = (
    Command("help", "", "shows this list"),
    Command("sessions", "", "lists the sessions that changed last"),
    Command("search", "WORDS", 'finds messages of all sessions: words, "phrases", beginnings*, -without'),
    Command("resume", "ID|NUMBER", "goes on with a session, or with one of the list"),
    Command("new", "", "begins a new session with the next message"),
    Command("title", "WORDS", "gives the session a title"),
    Command("model", "PROVIDER/MODEL", "chooses the model for the next messages; alone: the session's own"),
    Command("fork", "", "copies the session and goes on with the copy"),
    Command("clear", "", "empties the conversation"),
    Command("restore", "", "brings back what /clear took, until the next message"),
    Command("reasoning", "", "shows the newest reasoning whole (Ctrl-O)"),
    Command("abort", "", "ends the answer, and drops the messages that wait"),
    Command("decline", "WHY", "says no to the question of a tool"),
    Command("cancel", "", "puts the question of a tool away"),
    Command("skip", "", "leaves the field of a form out"),
    Command("exit", "", "ends the chat; an answer goes on (Ctrl-D)"),
)
"""In the order of /help."""

KEYS = (
    ("Enter", "sends"),
    ("Alt-Enter, Ctrl-J", "begins a new line"),
    ("Ctrl-C", "ends the answer, or empties the line"),
    ("Ctrl-U", "empties the line while an answer runs"),
    ("Ctrl-R", "searches what was typed before"),
    ("Ctrl-L", "clears the screen"),
)

_FORM = re.compile(r"/([a-z]+)(?:[ \t]+(.*))?")


class Call(NamedTuple):
    """A command as it was typed."""

    name: str
    argument: str


def parse_call(text: str) -> Call | None:
    """Returns the command that a text is; None when it is a message.

    Commands are one line. Whether the name is one of `COMMANDS` is not checked.
    """
    found = _FORM.fullmatch(text.rstrip())
    return Call(found[1], (found[2] or "").strip()) if found else None


def help_lines() -> list[tuple[str, str]]:
    """Returns commands and keys, each with what it does."""
    return [*((f"/{name} {argument}".rstrip(), does) for name, argument, does in COMMANDS), *KEYS]


class CommandCompleter(Completer):
    """Completes the names of commands, and the sessions of /resume."""

    def __init__(self, session_ids: Callable[[], Iterable[str]]) -> None:
        """Takes what gives the ids of known sessions."""
        self._session_ids = session_ids

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yields what the line may go on with."""
        text = document.text
        if document.cursor_position != len(text) or not text.startswith("/") or "\n" in text:
            return
        name, space, argument = text[1:].partition(" ")
        if not space:
            for command in COMMANDS:
                if command.name.startswith(name):
                    word = f"/{command.name}" + (" " if command.argument else "")
                    yield Completion(word, -len(text), display=f"/{command.name}", display_meta=command.does)
        elif name == "resume":
            for session_id in self._session_ids():
                if session_id.startswith(argument.strip()):
                    yield Completion(session_id, -len(argument))
