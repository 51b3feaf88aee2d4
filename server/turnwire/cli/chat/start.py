"""Starts `turnwire chat` in the form that fits its input and output."""

import asyncio
import os
import sys

from turnwire.cli.chat.plain.lines import Lines
from turnwire.cli.connection import Connection, ConnectionProblem


def run_chat(connection: Connection, session_id: str, model: str, text: str) -> int:
    """Sends one message, or asks for messages until the input ends.

    Args:
        connection: The server, and what to present to it.
        session_id: Session to continue; "" creates a new one.
        model: "provider/model"; "" leaves the choice to the server.
        text: The only message to send; "" sends standard input, or asks for messages when it is a terminal.

    Returns:
        The exit code: 0, or 1 when the only message was not answered.
    """
    if not text and not sys.stdin.isatty():
        text = sys.stdin.read()
        if not text.strip():
            print("turnwire: nothing to send", file=sys.stderr)
            return 1
    if not text and _is_terminal():
        # Imported here: it takes longer than most commands run.
        from turnwire.cli.chat.room import run_room  # noqa: PLC0415

        return asyncio.run(run_room(connection, session_id, model))
    try:
        opened = connection.open()
    except ConnectionProblem as problem:
        print(f"turnwire: {problem}", file=sys.stderr)
        return 2
    with opened as channel:
        lines = Lines(channel, connection.target, session_id, model)
        try:
            return lines.answer(text) if text else lines.run()
        except KeyboardInterrupt:
            return 130


def _is_terminal() -> bool:
    """Returns whether a person sits at a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
