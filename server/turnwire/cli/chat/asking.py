"""Asks a person what a tool call needs: a permission, or the answer to a question of the tool."""

import json
import re
import sys
import termios
from collections.abc import Callable

from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire.cli.chat.printer import beside_answer
from turnwire_client import BlockingClient, InvalidArgumentError

NOBODY = "nobody is at the terminal to be asked"
"""The reason that the model reads when the input is no terminal."""

MAX_REASON_CHARS = 4096

_NO = re.compile(r"(?:n|no)(?:[\s,:]+(.*))?", re.IGNORECASE)

_AGREE = {"schema": "an object in JSON, or ", "link": "agree? [y]es, "}
"""Answer that agrees to each form of question."""

Say = Callable[[str], None]
"""Prints a line for the person; control characters of its text do not reach the terminal."""


def typed(prompt: str) -> str:
    """Returns a line that a person types; asks again if it is not UTF-8. Raises EOFError at the end of the input."""
    while True:
        try:
            if sys.stdout.isatty():
                text = input(prompt)
            else:
                print(prompt, end="", file=sys.stderr, flush=True)  # `input` would write it into the answer
                text = input()
            text.encode()  # Python may keep other bytes as surrogates
            return text
        except UnicodeError:
            print("[that was not UTF-8]", file=beside_answer(), flush=True)


def answer_permission(client: BlockingClient, request: PermissionRequest, say: Say) -> bool:
    """Asks whether a tool call may run, and sends the answer.

    Returns:
        Whether all calls that the request's patterns match may run from now on.

    Raises:
        TurnwireError: somebody else answered first, or the turn has ended.
        KeyboardInterrupt: the request stays open.
    """
    say(f"[asks to run {request.title}]")
    whole = f"{request.metadata_json or request.title}\nalways allows: {', '.join(request.pattern)}"
    word, reason = _decision("allow it? [y]es, [A]lways in this session, [n]o and why, ? shows it whole: ", say, whole)
    if word == "no":
        client.reject(request, reason)
    else:
        client.approve(request, always=word == "always")
    return word == "always"


def answer_question(client: BlockingClient, question: Question, say: Say) -> None:
    """Asks what a tool wants to know, and sends the answer. Raises as `answer_permission`."""
    say(f"[{question.source} asks]\n{question.prompt}")
    form = question.WhichOneof("form")
    if form == "link":
        say(f"the address, which the chat does not open: {question.link.url}")
    elif form == "schema":
        say(f"the schema of the answer: {question.schema.schema_json}")
    while True:
        word, answer = _decision(_AGREE.get(form or "", "") + "[n]o and why: ", say, takes_object=form == "schema")
        if word == "no":
            return client.decline(question, answer)
        try:
            if form in _AGREE:  # else the form is newer than this chat
                return client.answer(question, json.loads(answer) if form == "schema" else None)
        except InvalidArgumentError as error:  # of a field
            say(f"[{error.message}]")


def _decision(prompt: str, say: Say, whole: str = "", *, takes_object: bool = False) -> tuple[str, str]:
    """Returns "yes", "no" and why, "always" where "?" shows something whole, or "yes" and an object in JSON.

    Other text asks again.
    """
    if not sys.stdin.isatty():
        return "no", NOBODY
    while True:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is no answer to it
        try:
            text = typed(prompt).strip()
        except EOFError:
            return "no", ""
        if no := _NO.fullmatch(text):
            return "no", (no[1] or "")[:MAX_REASON_CHARS]
        if takes_object and _is_object(text):
            return "yes", text
        if not takes_object and text.lower() in ("y", "yes"):
            return "yes", ""
        if whole and (text == "A" or text.lower() == "always"):  # a small a is no answer in any client
            return "always", ""
        if whole and text == "?":
            say(whole)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
