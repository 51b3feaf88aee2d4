"""`turnwire demo`: a server, a client and a conversation in one process, without key and network."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from rich.console import Console

from opencode.message.message_pb2 import (
    DisplayMessage,
    GetMessagesRequest,
    MessagePart,
    SendMessageRequest,
    StreamMessageRequest,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from turnwire.app import create_server
from turnwire.cli.chat.plain.turn_printer import TurnPrinter
from turnwire.cli.connection import CHANNEL_OPTIONS, describe
from turnwire.cli.visible_text import visible
from turnwire.config import load_config
from turnwire.domain.errors import DomainError
from turnwire.telemetry.logs.setup import configure_logging

if TYPE_CHECKING:
    from opencode.message.message_pb2_grpc import MessageServiceAsyncStub

_CONFIG = """
[server]
listen = "127.0.0.1:0"
[storage]
path = "demo.db"
[defaults]
model = "offline/echo"
[log]
level = "warning"
stuck_loop_seconds = 0
"""

_PROGRAM = "turnwire" if shutil.which("turnwire") or Path(sys.argv[0]).name != "turnwire" else sys.argv[0]
"""How the person calls the command: in a clone it is not on the path."""

_QUESTION = """/rate 30
/reason The user wants to see an answer stream in. I say what happens while it does.
Every word of this answer arrived as an event of its own. The question was stored before the model was asked, and the \
answer is stored while it streams. It goes on without its client, and what a killed server had stored is kept."""


def run_demo() -> int:
    """Runs the demonstration and prints it. Returns the exit code: 0, or 1 when something failed."""
    console = Console(highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="turnwire-demo-") as folder:
            return asyncio.run(_demonstrate(Path(folder), console))
    except (DomainError, OSError, RuntimeError) as error:
        problem = str(error)
    except grpc.RpcError as error:
        problem = describe(error)
    print(f"turnwire: the demo failed: {problem}", file=sys.stderr)
    return 1


async def _demonstrate(folder: Path, console: Console) -> int:
    file = folder / "turnwire.toml"
    await asyncio.to_thread(file.write_text, _CONFIG)
    config = load_config(file, {})
    configure_logging(config.log.level, config.log.format)
    async with (
        create_server(config, {}) as server,
        grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
    ):
        _explain(console, f"A server listens on {server.address}; its database is one new SQLite file.")
        messages = MessageServiceStub(channel)
        _explain(console, "StreamMessage sends a message to the model offline/echo and streams the events of its turn:")
        session_id, ended_well = await _stream(messages, console)
        _explain(console, f"GetMessages reads the stored conversation of session {session_id}.")
        _explain(console, "(The lines of the question that start with / tell the offline model how to answer.)")
        stored = await messages.GetMessages(GetMessagesRequest(session_id=session_id))
        for message in stored.messages:
            _show(console, message)
    _explain(
        console,
        f"The server shut down. Next: `{_PROGRAM} serve --web 127.0.0.1:8080` in one terminal; then open"
        f" http://127.0.0.1:8080/ in a browser, or run `{_PROGRAM} chat` in another terminal.",
    )
    return 0 if ended_well else 1


async def _stream(messages: "MessageServiceAsyncStub", console: Console) -> tuple[str, bool]:
    """Sends the question and prints the answer. Returns the session and whether the turn ended without failure."""
    request = SendMessageRequest(parts=[MessagePart(text=TextPart(text=_QUESTION))])
    printer = TurnPrinter(console)
    session_id = ""
    async for response in messages.StreamMessage(StreamMessageRequest(message=request)):
        if response.HasField("accepted"):
            session_id = response.accepted.session_id
        printer.show(response.events)
    return session_id, printer.ended is not None and not printer.ended.HasField("failure")


def _explain(console: Console, text: str) -> None:
    console.out(f"\n# {text}", style="bold green", highlight=False)


def _show(console: Console, message: DisplayMessage) -> None:
    tokens = f" ({message.tokens_input} tokens in, {message.tokens_output} out)" if message.tokens_output else ""
    console.out(f"{message.role}{tokens}", style="bold", highlight=False)
    for text in message.reasoning_parts:
        console.out(f"  reasoning: {visible(text)}", style="dim italic", highlight=False)
    for text in message.text_parts:
        for line in visible(text).split("\n"):
            console.out(f"  {line}", highlight=False)
