"""Asks a person what a tool call needs: a permission, or the answer to a question of the tool."""

import json
import re
import sys
import termios
from collections.abc import Callable
from typing import Any

from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire.cli.chat.printer import beside_answer
from turnwire.cli.visible_text import one_line
from turnwire_client import BlockingClient, InvalidArgumentError

NOBODY = "nobody is at the terminal to be asked"
"""The reason that the model reads when the input is no terminal."""

MAX_REASON_CHARS = 4096

_NO = re.compile(r"(?:n|no)(?:[\s,:]+(.*))?", re.IGNORECASE)
_TRUTH = {"y": True, "yes": True, "n": False, "no": False}

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
    values: dict[str, Any] = {}
    while True:
        if form == "schema" and sys.stdin.isatty():
            try:
                values = _filled(json.loads(question.schema.schema_json), values, say)
            except EOFError:
                return client.decline(question)
        agree = {"schema": "send it? [y]es, ", "link": "agree? [y]es, "}.get(form or "", "")
        word, reason = _decision(f"{agree}[n]o and why: ", say)
        if word == "no":
            return client.decline(question, reason)
        try:
            if agree:  # else the form is newer than this chat
                return client.answer(question, values if form == "schema" else None)
        except InvalidArgumentError as error:  # of a field: what was typed is offered again
            say(f"[{error.message}]")


def _decision(prompt: str, say: Say, whole: str = "") -> tuple[str, str]:
    """Returns "yes", "no", or "always" where "?" shows something whole; and why. Other text asks again."""
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
        if text.lower() in ("y", "yes"):
            return "yes", ""
        if whole and (text == "A" or text.lower() == "always"):  # a small a is no answer in any client
            return "always", ""
        if whole and text == "?":
            say(whole)


def _filled(schema: dict[str, Any], held: dict[str, Any], say: Say) -> dict[str, Any]:
    """Asks for each field of a form. Enter keeps what is held, takes the default, or leaves an optional field out."""
    values: dict[str, Any] = {}
    for name, field in schema.get("properties", {}).items():
        choices, is_required = _choices(field), name in schema.get("required", ())
        default = held.get(name, field.get("default"))
        say(f"{field.get('title', name)} ({field['type']}{'' if is_required else ', optional'})")
        if "description" in field:
            say(f"  {field['description']}")
        for number, (value, title) in enumerate(choices, 1):
            say(f"  {number} {title}" if title == value else f"  {number} {title} ({value})")
        prompt = one_line("" if default is None else json.dumps(default, ensure_ascii=False)) + ": "
        while name not in values:
            text = typed(prompt)
            try:
                if text.strip():
                    values[name] = _value(field["type"], choices, text)
                elif default is not None:
                    values[name] = default
                elif not is_required:
                    break
            except (ValueError, KeyError):
                say("[this is no such value]")
    return values


def _choices(field: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the values of a field that has a list of them, each with its title."""
    listed = field.get("items", field)
    if titled := listed.get("oneOf") or listed.get("anyOf"):
        return [(one["const"], one.get("title", one["const"])) for one in titled]
    values = listed.get("enum", [])
    return list(zip(values, listed.get("enumNames", values), strict=False))


def _value(kind: str, choices: list[tuple[str, str]], text: str) -> Any:
    """Returns what was typed as a value of a kind; bounds are the server's to check. Raises ValueError, KeyError."""
    match kind:
        case "boolean":
            return _TRUTH[text.strip().lower()]
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "array":
            return [_chosen(choices, one) for one in text.split(",") if one.strip()]
    return _chosen(choices, text) if choices else text


def _chosen(choices: list[tuple[str, str]], text: str) -> str:
    """Returns the value that a text names: itself, by its title, or by its number."""
    word = text.strip()
    for value, title in choices:
        if word in (value, title):
            return value
    if not word.isdecimal() or not 0 < int(word) <= len(choices):
        raise ValueError(word)
    return choices[int(word) - 1][0]
