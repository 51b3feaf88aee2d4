"""docs/internals/phases.md: the phases of a session's turns and of a tool call, from the tables of the code."""

from collections.abc import Callable, Mapping
from inspect import getdoc

from turnwire.core.tools.calls import TRANSITIONS as OF_CALLS
from turnwire.core.tools.open_calls import CallPhase
from turnwire.core.turns.schedule import TRANSITIONS as OF_TURNS

INTRODUCTION = """# Phases

What happens to the turns of a session, and to a tool call, is decided by commands, one after the other, [on what is
stored](../decisions/0084-decided-on-what-is-stored.md). This page is made from the tables in
`core/turns/schedule.py` and `core/tools/calls.py`, which also have the commands that leave the phase as it is.
"""

OF_CALL = {
    CallPhase.ASKING: "a person is to allow it",
    CallPhase.FREE: "a client may run it, and nobody holds it",
    CallPhase.HELD: "a client holds it; it is free when the lease ends",
    CallPhase.DUE: "the server is to run it",
    CallPhase.RUNNING: "the server's tool runs, or waits for the reply to a question",
    CallPhase.PAUSED: "the server's tool has ended its request with questions",
    CallPhase.SETTLED: "it has its result",
}


def phases() -> str:
    """Returns the text of the page."""
    turns = _diagram(OF_TURNS, lambda phase: str(phase.__name__))
    calls = _diagram(OF_CALLS, lambda phase: str(phase.value))
    about_turns = "\n".join(f"- **{phase.__name__}**: {_first_sentence(phase)}" for phase in OF_TURNS)
    about_calls = "\n".join(f"- **{phase.value}**: {OF_CALL[phase]}" for phase in OF_CALLS)
    of_turns = f"## The turns of a session\n\n{turns}\n\n{about_turns}"
    of_calls = f"## A tool call\n\n{calls}\n\n{about_calls}"
    return f"{INTRODUCTION}\n{of_turns}\n\n{of_calls}\n"


def _diagram(table: Mapping, name: Callable[[object], str]) -> str:  # type: ignore[type-arg]
    """Returns the diagram of the commands that lead to another phase."""
    found: dict[tuple[str, str], list[str]] = {}
    for phase, commands in table.items():
        for command, after in commands.items():
            for one in sorted(after, key=name):
                if one is not phase:
                    found.setdefault((name(phase), name(one)), []).append(command.__name__)
    edges = "\n".join(f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in found.items())
    return f"```mermaid\nstateDiagram-v2\n{edges}\n```"


def _first_sentence(phase: type) -> str:
    text = " ".join((getdoc(phase) or "").split())
    return text[0].lower() + text[1:].removesuffix(".")
