"""How each thing in a conversation looks."""

import json
import time
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from opencode.message.content_pb2 import FinishReason, MessageType, SessionMessage, TokenUsage, ToolResultContent
from opencode.question.question_pb2 import Question, QuestionAction
from opencode.search.search_pb2 import SearchHit
from opencode.session.session_pb2 import SessionInfo, SessionStatus
from opencode.tool.tool_pb2 import PermissionReply, PermissionRequest, ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.asking.filling import Filling
from turnwire.cli.chat.asking.forms import Field
from turnwire.cli.chat.plain.turn_printer import finish_reason_name
from turnwire.cli.chat.view.markdown_blocks import Block
from turnwire.cli.notes import result_outcome, unseen_note
from turnwire.cli.visible_text import visible

MAX_ARGUMENTS_CHARS = 200
MAX_TITLE_CHARS = 60
MAX_RESULT_CHARS = 600
MAX_RESULT_LINES = 6
MAX_CHOICES = 6
"""And fields, above the prompt of a small terminal; "?" shows all of them."""
MAX_RECALLED_CHARS = 4000
"""Of each text of an older message: what a person needs to know where a conversation was."""

_READER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""rich's own reader leaves HTML out, which is text that a model wrote."""

_CALL_STYLES = {"success": "green", "error": "red", "cancelled": "yellow"}


def markdown(block: Block) -> list[RenderableType]:
    """Draws a block, with an empty line before it unless it continues the one before."""
    drawn = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    drawn.parsed = _READER.parse(block.text)
    body = _WithoutMargins(drawn)
    return [body] if block.continues else [Text(), body]


def note(text: str, style: str = "dim") -> Text:
    """Draws a remark of the chat itself."""
    return Text(visible(text), style=style)


def said(text: str, sender: str = "") -> RenderableType:
    """Draws what a user wrote."""
    name = f"{_line(sender)} " if sender else ""
    return Text.assemble("\n", (f"{name}> ", "bold cyan"), (visible(text), "bold"))


def reasoning(chars: int, seconds: float | None) -> Text:
    """Draws folded reasoning. None stands for a time that nobody measured."""
    took = "" if seconds is None else f" for {duration(seconds)}"
    how = f"{chars:,} characters, Ctrl-O shows them" if chars else "not readable"
    return Text(f"\n∴ reasoned{took} ({how})", style="dim italic")


def call(state: ToolCallState) -> RenderableType:
    """Draws a tool call: name, arguments and status on one line, then the result, both shortened."""
    style = _CALL_STYLES.get(state.status, "dim")
    took = (
        state.finished_at - state.started_at if state.HasField("finished_at") and state.HasField("started_at") else None
    )
    status = _line(state.status) + ("" if took is None else f" {duration(took / 1000)}")
    arguments = shortened(_line(state.input_json), MAX_ARGUMENTS_CHARS)
    head = Text.assemble(
        "\n", ("● ", style), (_line(state.name), "bold"), " ", (arguments, "cyan"), " ", (status, style)
    )
    result = state.error if state.HasField("error") else state.output
    files = "".join(f"\n[{_line(file.filename)}]" for file in state.files)
    body = _first_lines(visible(result).strip("\n")) + files
    return (
        Text.assemble(head, "\n", (_indented(body.strip("\n")), "red" if state.HasField("error") else "dim"))
        if body
        else head
    )


def result(shown: ToolResultContent) -> RenderableType:
    """Draws the result of a call that is not in the conversation: how it ended, then the output, shortened."""
    failed, outcome = shown.is_error, result_outcome(shown)
    head = Text.assemble("\n", ("● ", "red" if failed else "green"), ("result", "bold"), " ")
    head.append(outcome, "red" if failed else "dim")
    body = _first_lines(visible(shown.output).strip("\n"))
    return Text.assemble(head, "\n", (_indented(body), "red" if failed else "dim")) if body else head


def permission(request: PermissionRequest, waiting: int) -> list[RenderableType]:
    """Draws an open permission request, and how many there are."""
    others = f" (1 of {waiting})" if waiting > 1 else ""
    return [
        Text.assemble((f"? asks to run{others} ", "bold yellow"), shortened(_line(request.title), MAX_ARGUMENTS_CHARS)),
        Text("  y allows it once, A always in this session, n [why] denies it, ? shows all of it", style="yellow"),
    ]


def asked(question: Question) -> list[RenderableType]:
    """Draws a question of a tool whole: who asks, what, and of a link the address with its host."""
    tool = f" ({_tool_of(question)})" if _tool_of(question) else ""
    drawn = [
        Text.assemble(("\n? ", "bold yellow"), (_line(question.source), "bold yellow"), (f"{tool} asks", "yellow")),
        Text(_indented(visible(question.prompt).strip("\n"))),
    ]
    if question.WhichOneof("form") == "link":
        url = _line(question.link.url)
        drawn.append(Text.assemble("  at ", (_host_of(url), "bold"), ", in your browser:"))
        drawn.append(Text(url, style="bold", overflow="fold"))  # from the first column, so that it is copied whole
    return [*drawn]


def whole_field(field: Field) -> list[RenderableType]:
    """Draws everything that is known of a field."""
    choices = [f"  {_choice(field, place)}" for place in range(len(field.choices))]
    return [Text("\n".join([f"\n{visible(field.title)} ({_line(field.name)})", visible(field.description), *choices]))]


def filling(filling: Filling, waiting: int) -> list[RenderableType]:
    """Draws the question of a tool that is being answered, as far as it is, and how many requests are open."""
    others = f" (1 of {waiting})" if waiting > 1 else ""
    source, field = _line(filling.question.source), filling.field
    drawn = []
    if field is not None:
        about = f"{filling.place}: {shortened(_line(field.title), MAX_TITLE_CHARS)}"
        expects = shortened(_line(field.expects), MAX_ARGUMENTS_CHARS)
        drawn.append(Text.assemble((f"? {source}{others} asks, {about} ", "bold yellow"), (f"({expects})", "yellow")))
        if field.description:
            drawn.append(Text(f"  {shortened(_line(field.description), MAX_ARGUMENTS_CHARS)}"))
        drawn += [Text(f"  {shortened(_choice(field, place), 80)}") for place in range(len(field.choices))][
            :MAX_CHOICES
        ]
        if len(field.choices) > MAX_CHOICES:
            drawn.append(note(f"  … and {len(field.choices) - MAX_CHOICES} more"))
    else:
        prompt = shortened(_line(filling.question.prompt), MAX_ARGUMENTS_CHARS)
        drawn.append(Text.assemble((f"? {source}{others} asks: ", "bold yellow"), prompt))
        drawn += filled(filling)[:MAX_CHOICES]
        if len(filling.filled) > MAX_CHOICES:
            drawn.append(note(f"  … and {len(filling.filled) - MAX_CHOICES} more"))
    if filling.problem:
        drawn.append(Text(f"  {shortened(_line(filling.problem), MAX_RESULT_CHARS)}", style="red"))
    how = "… sends the answer" if filling.is_sending else f"{filling.how}, ? shows all of it"
    return [*drawn, Text(f"  {shortened(_line(how), MAX_RESULT_CHARS)}", style="yellow")]


def filled(filling: Filling) -> list[Text]:
    """Draws what was filled in so far, a field in each line with its number."""
    return [
        Text(
            f"  {place} {shortened(_line(title), MAX_TITLE_CHARS)}: "
            f"{shortened(_line(value), MAX_ARGUMENTS_CHARS) if value else '(left out)'}"
        )
        for place, (title, value) in enumerate(filling.filled, 1)
    ]


def question_closed(question: Question, action: int, reason: str) -> Text:
    """Draws how the question of a tool was closed."""
    words = {
        QuestionAction.QUESTION_ACTION_ACCEPT: "answered",
        QuestionAction.QUESTION_ACTION_DECLINE: "declined",
        QuestionAction.QUESTION_ACTION_CANCEL: "put away",
        QuestionAction.QUESTION_ACTION_EXPIRED: "nobody answered in time",
    }
    why = f": {_line(reason)}" if reason else ""
    what = shortened(f"{_line(question.source)}: {_line(question.prompt)}", 80)
    return note(f"{words.get(action, 'closed')}{why}: {what}")  # type: ignore[call-overload]


def running(seconds: float, queued: int, *, lost: bool) -> Text:
    """Draws that a turn runs: for how long, how many messages wait, and whether the connection is lost."""
    facts = [duration(seconds), f"{queued} waiting" if queued else "", "connection lost" if lost else ""]
    return note(f"… {', '.join(filter(None, facts))}, Ctrl-C ends the answer")


def whole_request(request: PermissionRequest) -> list[RenderableType]:
    """Draws everything that is known of a permission request."""
    patterns = ", ".join(map(_line, request.pattern))
    facts = visible(request.metadata_json) or "The arguments are too long to be sent with the question."
    return [
        Text(f"\n{visible(request.title)}", style="bold"),
        Text(facts),
        Text(f"always allows: {patterns}", style="dim"),
    ]


def permission_closed(title: str, reply: int, reason: str) -> Text:
    """Draws how a permission request was closed."""
    words = {
        PermissionReply.PERMISSION_REPLY_ONCE: "allowed once",
        PermissionReply.PERMISSION_REPLY_ALWAYS: "always allowed",
        PermissionReply.PERMISSION_REPLY_REJECT: "denied",
        PermissionReply.PERMISSION_REPLY_CANCELLED: "not answered before the turn ended",
    }
    why = f": {_line(reason)}" if reason else ""
    return note(f"{words.get(reply, 'closed')}{why}: {shortened(_line(title), 80)}")  # type: ignore[call-overload]


def turn_end(turn: Turn) -> list[RenderableType]:
    """Draws why a turn ended, unless it simply did, and what it used."""
    drawn: list[RenderableType] = []
    if turn.HasField("failure"):
        drawn.append(Text(f"\n[{_line(turn.failure.reason)}: {_line(turn.failure.message)}]", style="red"))
    elif turn.finish_reason != FinishReason.FINISH_REASON_STOP:
        drawn.append(Text(f"\n[{finish_reason_name(turn.finish_reason)}]", style="red"))
    used = _used(turn)
    return [*drawn, note(used)] if used else drawn


def recalled(message: SessionMessage) -> list[RenderableType]:
    """Draws a message of before, shortened."""
    drawn: list[RenderableType] = []
    sender = message.sender_name or message.sender
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text" | "refusal" as kind:
                text = shortened(part.text.text if kind == "text" else part.refusal.text, MAX_RECALLED_CHARS)
                match message.type:
                    case MessageType.MESSAGE_TYPE_USER:
                        drawn.append(said(text, sender))
                    case MessageType.MESSAGE_TYPE_ASSISTANT:
                        drawn += markdown(Block(visible(text), continues=False))
                    case _:
                        drawn.append(note(f"\n{text}"))
            case "reasoning":
                drawn.append(reasoning(len(part.reasoning.text), None))
            case "tool_use":
                drawn.append(call(part.tool_use))
            case "tool_result":
                drawn.append(result(part.tool_result))
            case "file":
                drawn.append(note(f"[{_line(part.file.filename)}{unseen_note(part.file)}]"))
    return drawn


class _WithoutMargins:
    """Draws something without the empty lines at its beginning and end, of which rich gives each kind other ones."""

    def __init__(self, drawn: RenderableType) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._drawn, options, pad=False)
        full = [number for number, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
        for line in lines[full[0] : full[-1] + 1] if full else []:
            yield from line
            yield Segment.line()


def listed(number: int, session: SessionInfo, *, is_current: bool) -> Text:
    """Draws a session in a list: its number, when it changed in local time, title and id."""
    runs = " (running)" if session.status == SessionStatus.SESSION_STATUS_RUNNING else ""
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.time.updated / 1000))
    title = shortened(_line(session.title), MAX_TITLE_CHARS) or "(no title)"
    mark = "*" if is_current else " "
    return Text.assemble((f"{mark}{number:>3} ", "bold"), f"{changed} {title}{runs} ", (session.id, "dim"))


def found(number: int, hit: SearchHit) -> Text:
    """Draws a message that was found: its place in the list, session, and where it has the words."""
    day = time.strftime("%Y-%m-%d", time.localtime(hit.create_time.seconds))
    title = shortened(_line(hit.session_title), MAX_TITLE_CHARS) or "(no title)"
    pieces = [(visible(piece.text), "bold yellow" if piece.is_match else "none") for piece in hit.snippet]
    return Text.assemble((f"{number:>4} ", "bold"), f"{day} {title} ", (hit.session_id, "dim"), "\n     ", *pieces)


def shortened(text: str, max_chars: int) -> str:
    """Returns the text, or its beginning and how much is left out."""
    left_out = len(text) - max_chars
    return text if left_out <= 0 else f"{text[:max_chars]}… ({left_out:,} more characters)"


def duration(seconds: float) -> str:
    """Returns a time in the unit that fits."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _used(turn: Turn) -> str:
    facts: list[str] = []
    if turn.HasField("start_time") and turn.HasField("end_time"):
        facts.append(duration((turn.end_time.ToNanoseconds() - turn.start_time.ToNanoseconds()) / 1e9))
    if turn.HasField("usage"):
        usage: TokenUsage = turn.usage
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        facts.append(f"{prompt:,} tokens in, {usage.output_tokens + usage.reasoning_tokens:,} out")
    if turn.HasField("cost_pico_usd"):
        facts.append(f"${turn.cost_pico_usd / 1e12:.6f}")
    return " · ".join(facts)


def _tool_of(question: Question) -> str:
    try:
        tool = json.loads(question.metadata_json or "{}").get("tool", "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return _line(tool) if isinstance(tool, str) else ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _choice(field: Field, place: int) -> str:
    value, title = field.choices[place]
    words = _line(title) if title == value else f"{_line(title)} ({_line(value)})"
    return f"{place + 1} {words}" if field.has_numbers else words


def _line(text: str) -> str:
    """Returns the text in one line."""
    return " ".join(visible(text).split())


def _first_lines(text: str) -> str:
    lines = shortened(text, MAX_RESULT_CHARS).split("\n")
    more = [f"… ({len(lines) - MAX_RESULT_LINES} more lines)"] if len(lines) > MAX_RESULT_LINES else []
    return "\n".join([*lines[:MAX_RESULT_LINES], *more])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
