"""Reads the actions of the offline provider from the user's text.

`turnwire.providers.offline.provider` describes the syntax.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import File, FinishReason, Message, MessageType, Text, ToolResult, ToolUse
from turnwire.domain.conversation.turns import ResponseFormat, ResponseFormatKind, ToolChoiceMode, ToolDefinition
from turnwire.domain.errors import (
    ProviderContextFull,
    ProviderCredentialsRejected,
    ProviderError,
    ProviderRateLimited,
    ProviderRefusedRequest,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.offline.arguments import fitting_arguments

_LOREM = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore "
    "magna aliqua"
)

MAX_LINES = 5000
"""Maximum lines of a message; each is parsed before the first word of the answer."""

MAX_COUNTED_WORDS = 10_000
"""Maximum words of a message that are counted, for a model that reports their number or stops half way."""

_REFUSAL = "I will not answer that."

_ERRORS: Mapping[str, Callable[[str, Mapping[str, str]], ProviderError]] = {
    "rate_limited": lambda text, facts: ProviderRateLimited(text, facts, timedelta(milliseconds=100)),
    "unavailable": ProviderUnavailable,
    "timeout": ProviderTimeout,
    "credentials": ProviderCredentialsRejected,
    "refused": ProviderRefusedRequest,
    "context_full": ProviderContextFull,
    "failed": ProviderStreamFailed,
    "cut": ProviderStreamCut,
}

_FINISH_REASONS = {
    reason.value: reason
    for reason in (
        FinishReason.STOP,
        FinishReason.LENGTH,
        FinishReason.TOOL_USE,
        FinishReason.REFUSAL,
        FinishReason.CONTENT_FILTER,
        FinishReason.CONTEXT_FULL,
        FinishReason.PAUSED,
    )
}


class Say(Struct, frozen=True):
    """Answers with the text."""

    text: str
    filler_words: int = 0
    """Words of filler after the text. They are made when they are sent, because many lines may each request many."""
    begins_part: bool = True
    """False when it continues the text part before it; `text` then begins with a new line."""
    ends_part: bool = True
    """False when the next text continues in the same part."""


class Reason(Struct, frozen=True):
    """Reasons aloud."""

    text: str


class Refuse(Struct, frozen=True):
    """Refuses with the text."""

    text: str


class CallTool(Struct, frozen=True):
    """Calls a tool; the arguments are sent unchanged."""

    name: str
    arguments: str


class FinishWith(Struct, frozen=True):
    """Sets the finish reason."""

    reason: FinishReason


class Rate(Struct, frozen=True):
    """Sets the pace; 0 means no pauses."""

    words_per_second: float


class Sleep(Struct, frozen=True):
    """Pauses."""

    seconds: float


class Stop(Struct, frozen=True):
    """Raises the error with the given code."""

    code: str
    words: int
    """Number of words before the error."""


class Flaky(Struct, frozen=True):
    """Fails the first calls for this message."""

    code: str
    calls: int


ContentAction = Say | Reason | Refuse | CallTool
Action = ContentAction | FinishWith | Rate | Sleep | Stop | Flaky


def position(request: ProviderRequest) -> tuple[str, int]:
    """Returns the id of the answered message and the number of this model call in its turn, from 0.

    The id is "" when the conversation has no user message.
    """
    user = _last_user_message(request)
    step = sum(m.type is MessageType.ASSISTANT for m in _messages_of_turn(request))
    return (user.message_id if user else ""), step


def read_script(request: ProviderRequest) -> list[Action]:
    """Returns the actions of this model call.

    Raises:
        ProviderRefusedRequest: a directive has a wrong argument.
    """
    user = _last_user_message(request)
    step = position(request)[1]
    sections: list[list[str]] = [[]]
    for line in _lines_of(user) if user else ():
        if line.strip() == "/step":
            sections.append([])
        else:
            sections[-1].append(line)
    if step >= len(sections):
        return _as_asked([Say(_results_of_tools(request) or "continued")], request)
    actions = _actions(sections[step], request)
    if step == 0 and user and request.model_id == "echo":
        actions += [_named_file(file) for file in user.files()]
    return _with_joined_text(_as_asked(actions, request))


def _as_asked(actions: list[Action], request: ProviderRequest) -> list[Action]:
    """Returns the actions with the calls and the form of text that the request requires."""
    choice, form = request.options.tool_choice, request.options.response_format
    has_calls = any(isinstance(action, CallTool) for action in actions)
    if choice is not None and choice.mode is ToolChoiceMode.NONE and has_calls:
        actions = [action for action in actions if not isinstance(action, CallTool)]
        if not any(isinstance(action, ContentAction) for action in actions):
            actions.append(Say("I call no tool."))
    elif choice is not None and choice.mode is ToolChoiceMode.REQUIRED and request.tools and not has_calls:
        name = choice.tool_name or request.tools[0].name
        actions = [*actions, CallTool(name, fitting_arguments(request.tools, name))]
    texts = [action for action in actions if isinstance(action, Say)]
    if form is None or form.kind is ResponseFormatKind.TEXT or not texts:
        return actions
    said = Say(_in_form("\n".join(action.text for action in texts), form))
    place = actions.index(texts[0])
    rest = [action for action in actions[place:] if not isinstance(action, Say)]
    return [*actions[:place], said, *rest]


def _in_form(text: str, form: ResponseFormat) -> str:
    """Returns a text that is a JSON object unchanged, and an object in place of any other."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    if form.kind is ResponseFormatKind.JSON:
        return json.dumps({"text": text}, ensure_ascii=False)
    return fitting_arguments([ToolDefinition(form.name, "", form.schema_json)], form.name)


def error_of(code: str) -> ProviderError:
    """Returns the error for the code of a directive."""
    return _ERRORS[code](f"the offline provider was asked to fail with {code}", {"code": code})


def _with_joined_text(actions: list[Action]) -> list[Action]:
    """Returns the actions; their texts are one part unless other content comes between them."""
    joined: list[Action] = []
    before: tuple[int, Say] | None = None  # position and value of the text that may continue
    for action in actions:
        if isinstance(action, Say):
            if not action.filler_words and not action.text.strip():
                continue
            said = action
            if before is not None:
                place, text = before
                joined[place] = msgspec.structs.replace(text, ends_part=False)
                said = Say(f"\n{action.text}", action.filler_words, begins_part=False)
            before = len(joined), said
            joined.append(said)
        else:
            joined.append(action)
            if isinstance(action, ContentAction):
                before = None
    return joined


def _last_user_message(request: ProviderRequest) -> Message | None:
    return next((m for m in reversed(request.messages) if m.type is MessageType.USER), None)


def _messages_of_turn(request: ProviderRequest) -> list[Message]:
    """Returns the messages after the last user message, newest first."""
    return list(itertools.takewhile(lambda m: m.type is not MessageType.USER, reversed(request.messages)))


def _text_of(message: Message) -> str:
    return "\n".join(part.content.text for part in message.parts if isinstance(part.content, Text))


def _lines_of(message: Message) -> list[str]:
    text = _text_of(message)
    if text.count("\n") >= MAX_LINES:
        raise ProviderRefusedRequest(f"offline models read messages of at most {MAX_LINES} lines")
    first, *others = text.split("\n")
    unnamed = _SPEAKER.sub("", first, count=1)
    return [unnamed if _is_directive(unnamed) else first, *others]


def _named_file(file: File) -> Say:
    return Say(f"[{file.filename or file.mime}, {file.size_bytes} bytes]")


def _actions(lines: list[str], request: ProviderRequest) -> list[Action]:
    """Reads the lines of one step."""
    actions: list[Action] = []
    answered = False
    plain_text = "\n".join(line for line in lines if not _is_directive(line)).strip()
    for are_directives, group in itertools.groupby(lines, _is_directive):
        if are_directives:
            actions += [_directive(line, request) for line in group]
            continue
        text = "\n".join(group)
        if not text.strip():
            continue
        if request.model_id == "echo":
            actions.append(Say(text))
        elif not answered:
            actions += _own_answer(request, plain_text)
        answered = True
    if not answered and not any(isinstance(action, ContentAction) for action in actions):
        actions += _own_answer(request, plain_text)
    return actions


def _own_answer(request: ProviderRequest, text: str) -> list[Action]:
    """Returns the model's own actions; `turnwire.providers.offline.provider` describes the models."""
    if request.model_id == "echo":
        return [Say(text)] if text else []
    text = text or "There was no text."
    words = text.split(maxsplit=MAX_COUNTED_WORDS)
    half = max(1, len(words) // 2)
    calls = [CallTool(tool.name, fitting_arguments(request.tools, tool.name)) for tool in request.tools]
    answers: dict[str, list[Action]] = {
        "lorem": [Say("", 200)],
        "reasoning": [Reason(f"The message has {len(words)} words. I repeat them."), Say(text)],
        "tools": [*calls] or [Say("No tools are declared.")],
        "error": [Stop("unavailable", 0)],
        "fail": [Say(text), Stop("failed", 0)],
        "cut": [Stop("cut", half), Say(text)],
        "refuse": [Refuse(_REFUSAL)],
        "length": [Say(" ".join(words[:half])), FinishWith(FinishReason.LENGTH)],
    }
    return answers[request.model_id]


_SPEAKER = re.compile(r"\A[^:]{1,80}: (?=/)")
"""A speaker's name before a directive: the core puts it before a message where there are several speakers."""


def _directive_name(line: str) -> str:
    match = re.match(r"/(\w+)(?=\s|$)", line)
    return match[1] if match and match[1] in _DIRECTIVES else ""


def _is_directive(line: str) -> bool:
    return bool(_directive_name(line))


def _directive(line: str, request: ProviderRequest) -> Action:
    """Reads a directive.

    Raises:
        ProviderRefusedRequest: its argument is wrong.
    """
    name = _directive_name(line)
    try:
        return _DIRECTIVES[name](line[len(name) + 1 :].strip(), request)
    except ValueError as error:
        raise ProviderRefusedRequest(f"/{name}: {error}", {"directive": name, "problem": str(error)}) from error


def _tool_directive(argument: str, request: ProviderRequest) -> CallTool:
    name, _, arguments = argument.partition(" ")
    if not name:
        raise ValueError("the name of the tool is missing")
    return CallTool(name, arguments.strip() or fitting_arguments(request.tools, name))


def _code_and_number(argument: str) -> tuple[str, int]:
    code, _, number = argument.partition(" ")
    if code not in _ERRORS:
        raise ValueError(f"{code!r} must be one of {', '.join(_ERRORS)}")
    return code, int(_number(number or "0"))


def _finish_directive(argument: str) -> FinishWith:
    if argument not in _FINISH_REASONS:
        raise ValueError(f"{argument!r} must be one of {', '.join(_FINISH_REASONS)}")
    return FinishWith(_FINISH_REASONS[argument])


def _rate_directive(argument: str) -> Rate:
    rate = _number(argument)
    if 0 < rate < 0.01:
        raise ValueError(f"{argument!r} must be 0 or at least 0.01")
    return Rate(rate)


def _number(argument: str) -> float:
    """Reads a number from 0 to 100,000: enough for any test, and too few to keep the server busy for hours."""
    try:
        number = float(argument)
    except ValueError:
        number = -1
    if not 0 <= number <= 100_000:
        raise ValueError(f"{argument!r} must be a number from 0 to 100000")
    return number


_DIRECTIVES: Mapping[str, Callable[[str, ProviderRequest], Action]] = {
    "reason": lambda argument, _: Reason(argument or "I think about it."),
    "words": lambda argument, _: Say("", int(_number(argument))),
    "tool": _tool_directive,
    "refuse": lambda argument, _: Refuse(argument or _REFUSAL),
    "finish": lambda argument, _: _finish_directive(argument),
    "rate": lambda argument, _: _rate_directive(argument),
    "sleep": lambda argument, _: Sleep(_number(argument)),
    "error": lambda argument, _: Stop(*_code_and_number(argument)),
    "cut": lambda argument, _: Stop("cut", int(_number(argument or "0"))),
    "flaky": lambda argument, _: Flaky(*_code_and_number(argument)),
}


def filler(words: int, before: str) -> Iterator[str]:
    """Yields the given number of nonsense words: the first one after `before`, each other after a space."""
    for word in itertools.islice(itertools.cycle(_LOREM.split()), words):
        yield f"{before}{word}"
        before = " "


def _results_of_tools(request: ProviderRequest) -> str:
    """Returns a line for each result since the model's last message, oldest first; "" when there are none."""
    lines: list[str] = []
    for message in _messages_of_turn(request):
        found = [_result_line(part.content) for part in message.parts]
        lines[:0] = [line for line in found if line]
        if message.type is MessageType.ASSISTANT:
            break
    return "\n".join(lines)


def _result_line(content: object) -> str:
    match content:
        case ToolUse(name=name, output=str(output)):
            return f"{name} returned: {output}"
        case ToolUse(name=name, error=str(error)):
            return f"{name} failed: {error}"
        case ToolResult(call_id=call_id, output=output, is_error=is_error, exit_code=exit_code):
            code = "" if exit_code is None else f" with exit code {exit_code}"
            return f"{call_id or 'a call'} {'failed' if is_error else 'returned'}{code}: {output}"
    return ""
