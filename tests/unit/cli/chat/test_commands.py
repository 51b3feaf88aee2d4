"""How a line of the prompt is read."""

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from turnwire.cli.chat.commands import COMMANDS, Call, CommandCompleter, parse_call
from turnwire.cli.chat.room import Room


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("/help", Call("help", "")),
        ("/resume  ses_1 ", Call("resume", "ses_1")),
        ("/title two words\n", Call("title", "two words")),
        ("/nothing", Call("nothing", "")),
        (" /help", None),
        ("/rate 5\nhello", None),
        ("/etc/hosts is what?", None),
        ("help", None),
        ("/", None),
    ],
)
def test_a_command_is_one_line_that_begins_with_a_slash_and_a_word(text: str, call: Call | None) -> None:
    """Everything else is a message."""
    assert parse_call(text) == call


def test_every_command_can_be_carried_out() -> None:
    """And nothing else can."""
    done = {name.removeprefix("_do_") for name in vars(Room) if name.startswith("_do_")}
    assert done == {command.name for command in COMMANDS}


@pytest.mark.parametrize(
    ("text", "completions"),
    [
        ("/re", ["/resume ", "/restore", "/reasoning"]),
        ("/resume ses_a", ["ses_a1", "ses_a2"]),
        ("/title ", []),
        ("re", []),
        ("one\n/re", []),
    ],
)
def test_commands_and_known_sessions_are_completed(text: str, completions: list[str]) -> None:
    """At the end of the line."""
    completer = CommandCompleter(lambda: ["ses_a1", "ses_b", "ses_a2"])
    found = completer.get_completions(Document(text), CompleteEvent())
    assert [completion.text for completion in found] == completions
