"""`turnwire demo`: a server, a client and a conversation in one process, without key and network."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from opencode.message.message_pb2 import DisplayMessage, GetMessagesRequest
from opencode.message.message_pb2_grpc import MessageServiceStub
from turnwire.app import create_server
from turnwire.cli.chat.printer import Printer
from turnwire.cli.visible_text import visible
from turnwire.config import load_config
from turnwire.domain.errors import DomainError
from turnwire.telemetry.logs.setup import configure_logging
from turnwire_client import Client, TurnwireError

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
"""Name by which the person calls the command: in a clone it is not on the path."""

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
    except (DomainError, OSError, RuntimeError, TurnwireError) as error:
        print(f"turnwire: the demo failed: {error}", file=sys.stderr)
        return 1


async def _demonstrate(folder: Path, console: Console) -> int:
    file = folder / "turnwire.toml"
    await asyncio.to_thread(file.write_text, _CONFIG)
    config = load_config(file, {})
    configure_logging(config.log.level, config.log.format)
    async with create_server(config, {}) as server, Client.connect(server.address) as client:
        _explain(console, f"A server listens on {server.address}; its database is one new SQLite file.")
        _explain(console, "A client sends a message to the model offline/echo and watches the answer:")
        session_id, ended_well = await _ask(client)
        _explain(console, f"GetMessages reads the stored conversation of session {session_id}.")
        _explain(console, "(The lines of the question that start with / tell the offline model how to answer.)")
        messages = client.stub(MessageServiceStub)
        stored = await client.call(messages.GetMessages, GetMessagesRequest(session_id=session_id))
        for message in stored.messages:
            _show(console, message)
    _explain(
        console,
        f"The server shut down. Next: `{_PROGRAM} serve --web 127.0.0.1:8080` in one terminal; then open"
        f" http://127.0.0.1:8080/ in a browser, or run `{_PROGRAM} chat` in another terminal.",
    )
    return 0 if ended_well else 1


async def _ask(client: Client) -> tuple[str, bool]:
    """Sends the question and prints the answer. Returns the session and whether the turn ended without failure."""
    sent = await client.send(_QUESTION)
    printer = Printer(aside=sys.stdout)
    async with client.watch(sent.session_id, resume_token=sent.resume_token) as watch:
        async for update in watch:
            printer.show(update, {sent.turn_id})
            if turn := update.conversation.ended_turns.get(sent.turn_id):
                printer.end(turn)
                return sent.session_id, not turn.HasField("failure")
    return sent.session_id, False


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
