"""Makes the database file that is kept of a schema version: `python -m tests.support.old_database FILE`.

It holds a conversation with every kind of part, and what a killed server leaves behind: an answer that streams and a
message that waits. Run once for each released schema version; the file is then never made again.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from tests.support.conversation import FOREVER, ask, file, new_session, talk, text, tool, watching
from tests.support.running_server import connect
from tests.support.server_process import server_process

PICTURE = "data:image/png;base64,iVBORw0KGgo="


async def make(folder: Path) -> Path:
    """Makes a database in the folder and returns its path; the server that wrote it was killed."""
    async with server_process(folder) as server, connect(server.address) as client:
        session_id = await new_session(client, title="Old conversation", directory="/tmp")
        await talk(client, "/reason I think.\nI answer.", session_id)
        await talk(client, '/tool unknown {"a": 1.0}\n/step\nThe tool is not there.', session_id)
        await talk(client, "/refuse I will not.", session_id, request_id="kept-request", tools=[tool("known")])
        await talk(client, "/words 20\n/cut 5", session_id)
        await client.messages.AppendMessage(
            AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("The host says.")])
        )
        request = ask(f"Streams.\n{FOREVER}", session_id)
        request.parts.append(file(url=PICTURE, filename="dot.png"))
        accepted = await client.messages.SendMessage(request)
        await client.messages.SendMessage(ask("Waits.", session_id))
        async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
            await watch.until_kind("part_finished")
        await server.kill()
    return folder / "turnwire.db"


def main() -> None:
    """Writes the file named by the argument as one file, without a write-ahead log."""
    with tempfile.TemporaryDirectory() as folder:
        made = asyncio.run(make(Path(folder)))
        connection = sqlite3.connect(made)
        connection.execute("VACUUM INTO ?", (sys.argv[1],))
        connection.close()


if __name__ == "__main__":
    main()
