"""Tool calls: of clients with leases and logs, with permissions, and of a server's tool that asks a person."""

from pathlib import Path
from typing import Any

from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT, QUESTION_ACTION_DECLINE
from opencode.tool.tool_pb2 import PermissionResponse, SubmitToolResultRequest, ToolResultFile
from tests.support.clients.conversation import new_session, tool
from tests.support.clients.tool_calls import claim, release, renew
from tests.support.servers.mcp import asker, mcp_client, stdio
from tests.support.vectors.recording import Cut, Recording
from tests.support.vectors.stage import say, send, taped
from tests.support.vectors.tape import Tape

ARGUMENTS = '{"at": "the sky", "words": "één 世界 🌍"}'


async def client_tool(folder: Path) -> dict[str, Recording]:
    """A call is claimed, logs, is given up, claimed again, and gets its result."""
    async with taped(folder) as tape:
        accepted = await send(tape, f"/rate 40\nI look.\n/tool look {ARGUMENTS}\n/step\nSeen.", tools=[tool("look")])
        call = (await tape.until_kind("tool_call_updated")).tool_call_updated.state
        found = {"tool-call-waits": await tape.recorded("A call of a client's tool waits.", Cut.IN_ORDER)}
        tools = tape.client.tools
        ids = tape.session_id, call.id
        lease = (await tools.ClaimToolCall(claim(*ids))).lease
        for line in ("one", "two: 世界", "three"):
            await tools.RenewToolCall(renew(*ids, lease, line))
        await tools.ReleaseToolCall(release(*ids, lease))
        lease = (await tools.ClaimToolCall(claim(*ids, "two"))).lease
        file = ToolResultFile(mime="text/plain", filename="seen.txt", data=b"stars")
        await tools.SubmitToolResult(
            SubmitToolResultRequest(
                session_id=ids[0], tool_call_id=ids[1], output="stars", files=[file], lease_id=lease.lease_id
            )
        )
        await tape.ended(accepted.turn_id)
        found["client-tool"] = await tape.recorded(
            "A client's tool is claimed, logs, and gives its result.", Cut.IN_ORDER
        )
        return found


async def permissions(folder: Path) -> dict[str, Recording]:
    """Two calls ask for permission: one is allowed, one is rejected; a client joins while both are open."""
    async with taped(folder, '[permissions]\n"look" = "ask"\n') as tape:
        words = f"I look.\n/tool look {ARGUMENTS}\n/tool look {{}}\n/step\nSeen."
        accepted = await send(tape, words, tools=[tool("look")])
        await tape.until_kind("permission_asked", 2)
        asked = [event.permission_asked.permission for event in tape.of_kind("permission_asked")]
        found = {"permission-open": await tape.recorded("Two calls ask for permission.")}
        joined = Tape(tape.client, tape.session_id)
        async with joined.watching(from_here=True):
            found["permission-joined"] = await joined.recorded(
                "A client without a place joins while two permission requests are open."
            )
        for one, word in zip(asked, ("once", "reject"), strict=True):
            await tape.client.permissions.RespondToPermission(
                PermissionResponse(session_id=tape.session_id, permission_id=one.id, response=word, reason="because")
            )
            await tape.rested()
        found["permission-replied"] = await tape.recorded("One call is allowed, one is rejected.")
        await tape.client.tools.SubmitToolResult(
            session_id=tape.session_id, tool_call_id=asked[0].tool_call_id, output="stars"
        )
        await tape.ended(accepted.turn_id)
        found["permissions"] = await tape.recorded("Two calls ask for permission, one runs, and the answer goes on.")
        return found


async def logs(folder: Path) -> dict[str, Recording]:
    """A tool of the server logs while it runs, and a client joins meanwhile."""
    async with mcp_client(folder, stdio(folder)) as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching():
            await say(tape, '/tool test.count {"to": 5}\n/step\nCounted.')
            await send(tape, "/tool test.slow {}")
            await tape.until_kind("tool_log", 6)
            found = {"tool-logs": await tape.recorded("Tools of the server log lines; the last one still runs.")}
            joined = Tape(client, tape.session_id)
            async with joined.watching(from_here=True):
                found["tool-logs-joined"] = await joined.recorded("A client without a place joins while a tool runs.")
            await client.messages.AbortSession(session_id=tape.session_id)
            return found


async def questions(folder: Path) -> dict[str, Recording]:
    """A tool of an MCP server asks a person, twice."""
    async with mcp_client(folder, asker()) as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching():
            words = '/tool ask.paint {"what": "the door"}'
            accepted = await send(tape, words)
            question = (await tape.until_kind("question_asked")).question_asked.question
            found = {"question-open": await tape.recorded("A running call asks a person.")}
            joined = Tape(client, tape.session_id)
            async with joined.watching(from_here=True):
                found["question-joined"] = await joined.recorded(
                    "A client without a place joins while a question is open."
                )
            await _answer(tape, question, QUESTION_ACTION_ACCEPT, '{"colour":"red","coats":2}')
            await tape.ended(accepted.turn_id)
            accepted = await send(tape, words)
            question = (await tape.until_kind("question_asked", 2)).question_asked.question
            await _answer(tape, question, QUESTION_ACTION_DECLINE, "")
            await tape.ended(accepted.turn_id)
            found["questions"] = await tape.recorded("A question is answered, and another one declined.")
            return found


async def _answer(tape: Tape, question: Any, action: Any, content: str) -> None:
    await tape.client.questions.AnswerQuestion(
        session_id=tape.session_id, question_id=question.question_id, action=action, content_json=content
    )


async def unknown_tool(folder: Path) -> dict[str, Recording]:
    """Calls that nobody can run, and arguments that are no JSON."""
    async with taped(folder) as tape:
        await say(
            tape, "/reason I try.\n/tool missing {}\n/tool look {broken\n/step\nIt is gone.", tools=[tool("look")]
        )
        return {
            "tool-errors": await tape.recorded(
                "Calls of a tool that is not there, and with broken arguments, get errors."
            )
        }


SCENES = (client_tool, permissions, logs, questions, unknown_tool)
