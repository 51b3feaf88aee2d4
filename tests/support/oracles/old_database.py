"""Makes the database file that is kept of a schema version: `python -m tests.support.oracles.old_database FILE`.

It holds a conversation with every kind of part, and what a killed server leaves behind: an answer that streams and a
message that waits. From version 2 on it holds a second conversation: a session with tools of its own, the summary of
older messages, a tool call whose result has files, and one that waits for a permission. From version 6 on it holds an
upload that grows. Run once for each released
schema version; the file is then never made again.
"""

import asyncio
import sqlite3
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    file,
    messages_of,
    new_session,
    talk,
    text,
    tool,
    words_of,
)
from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    in_order,
    make_answer,
    make_file,
    make_message,
    make_part,
    make_permission,
    make_session,
    make_turn,
)
from tests.support.servers.process import server_process
from tests.support.servers.running import connect
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    MessageType,
    SentContext,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutFile, PutPermission, PutSession, PutTurn
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings

APPROVALS = "ses_approvals"
FAR = datetime(2120, 1, 1, tzinfo=UTC)
PLOT, LOG = make_file(b"a plot", "plot.png", "image/png"), make_file(b"all of the log", "", "text/plain")
FILES = (PutFile(PLOT.sha256, b"a plot"), PutFile(LOG.sha256, b"all of the log"))
TURN = make_turn(
    "trn_approvals", APPROVALS, user_message_id="msg_question", tools=(ToolDefinition("draw", "draws", "{}"),)
)
QUESTION = make_message("msg_question", "Draw.", session_id=APPROVALS, turn_id=TURN.turn_id)
SUMMARY = make_message(
    "msg_summary",
    "Somebody wants a drawing.",
    session_id=APPROVALS,
    type=MessageType.SYSTEM,
    turn_id=TURN.turn_id,
    compaction=Compaction(through_message_id="msg_question", message_count=1, tokens_before=100, tokens_after=10),
)
CALLS = make_answer(
    "msg_calls",
    make_part(
        0,
        ToolUse(
            name="draw",
            call_id="call_1",
            input_json="{}",
            status=ToolStatus.SUCCESS,
            output="drawn",
            started_at=NOW,
            finished_at=NOW,
            files=(PLOT,),
            full_output=LOG,
        ),
        part_id="prt_drawn",
    ),
    make_part(
        1,
        ToolUse(name="draw", call_id="call_2", input_json="{}", started_at=NOW, permission_id="per_open"),
        part_id="prt_asks",
    ),
    session_id=APPROVALS,
    turn_id=TURN.turn_id,
    answers_message_id=QUESTION.message_id,
    finish_reason=FinishReason.TOOL_USE,
    sent_context=SentContext(system_hash="s", tools_hash="t", prefix_hash="p", message_count=2, estimated_tokens=10),
)
IN_ORDER = in_order(QUESTION, SUMMARY, CALLS)
"""The messages of the session as they are read."""

ANSWERED = make_permission(
    "per_answered",
    APPROVALS,
    turn_id=TURN.turn_id,
    message_id=CALLS.message_id,
    tool_call_id="prt_drawn",
    tool="draw",
    patterns=("draw",),
    answer=PermissionAnswer(PermissionChoice.ALWAYS, "it is a nice one"),
)
OPEN = make_permission(
    "per_open",
    APPROVALS,
    turn_id=TURN.turn_id,
    message_id=CALLS.message_id,
    part_index=1,
    tool_call_id="prt_asks",
    tool="draw",
    patterns=("draw", "dr*"),
)

UPLOAD = Upload(
    upload_id="upl_old", tenant="default", subject="", mime="text/plain", size_bytes=20, created_at=NOW, expires_at=FAR
)
UPLOADED = b"half of it"

PICTURE = "data:image/png;base64,iVBORw0KGgo="


async def make(folder: Path) -> Path:
    """Makes a database in the folder and returns its path; the server that wrote it was killed."""
    # as version 1 had none: notes of turns that did not end in order
    quiet = '[defaults]\nhost_messages = false\n[files]\nroots = ["/tmp"]\n'
    async with server_process(folder, quiet) as server, connect(server.address) as client:
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
        await client.messages.SendMessage(request)
        await client.messages.SendMessage(ask("Waits.", session_id))
        while "Streams." not in map(words_of, await messages_of(client, session_id)):
            pass  # what streams is durable once it was read
        await server.kill()
    await _add_approvals(folder / "turnwire.db")
    return folder / "turnwire.db"


async def _add_approvals(path: Path) -> None:
    """Stores the second conversation, whose turn asks for a permission."""
    store = await SqliteStore.open(StorageSettings(path=path), ProtoCodec(), lambda _: None)
    try:
        await store.commit(creating(APPROVALS, NOW, PutTurn(TURN)))
        settings = make_session(
            APPROVALS, title="Old approvals", tools=TURN.tools, revision=2, budget=Budget(max_tokens=9000)
        )
        await store.commit(Commit(session_id=APPROVALS, at=NOW, changes=(PutSession(settings),)))
        for message in (QUESTION, SUMMARY, CALLS):
            await store.commit(adding(message, NOW, FILES))
        changes = tuple(map(PutPermission, (ANSWERED, OPEN)))
        await store.commit(Commit(session_id=APPROVALS, at=NOW, changes=changes))
        await store.uploads.create(UPLOAD, UploadLimits(max_uploads=1, max_removed_bytes=0), None)
        await store.uploads.write(DEFAULT_TENANT, UPLOAD.upload_id, Chunk(offset=0, data=UPLOADED), FAR)
    finally:
        await store.aclose()


def main() -> None:
    """Writes the file named by the argument as one file, without a write-ahead log."""
    with tempfile.TemporaryDirectory() as folder:
        made = asyncio.run(make(Path(folder)))
        connection = sqlite3.connect(made)
        connection.execute("VACUUM INTO ?", (sys.argv[1],))
        connection.close()


if __name__ == "__main__":
    main()
