"""A server that is killed in mid-answer, and places that it does not keep."""

from pathlib import Path

from tests.support.clients.conversation import change_of, new_session, tool, turn_ended
from tests.support.servers.process import server_process
from tests.support.servers.running import connect
from tests.support.vectors.recording import Cut, Recording
from tests.support.vectors.stage import WORLDS, say, send, stage
from tests.support.vectors.tape import Tape, listing

MANY = 300
"""Changes after which a server that keeps ten events has dropped the first."""


async def killed(folder: Path) -> dict[str, Recording]:
    """Kill -9 in mid-answer; the client resumes on the next server."""
    async with server_process(folder) as server, connect(server.address) as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching():
            await say(tape, "Before.")
            await send(tape, f"/rate 40\n/reason Let me think.\n{WORLDS}\n/sleep 600\nNever said.")
            await tape.until_text(WORLDS)
            waits = await send(tape, "I wait.")
            await tape.rested()
            await server.kill()
    async with server_process(folder) as server, connect(server.address) as tape.client:
        await turn_ended(tape.client, waits)  # before the client is back
        async with tape.watching():
            return {
                "killed": await tape.recorded(
                    "The server is killed in mid-answer; what came stays, and the message that waited is answered.",
                    Cut.IN_ORDER,
                )
            }


async def killed_with_a_call(folder: Path) -> dict[str, Recording]:
    """Kill -9 while a call waits; the turn goes on after the next start."""
    async with server_process(folder) as server, connect(server.address) as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching():
            accepted = await send(tape, "I look.\n/tool look {}\n/step\nSeen.", tools=[tool("look")])
            call = (await tape.until_kind("tool_call_updated")).tool_call_updated.state
            await tape.rested()
            await server.kill()
    async with server_process(folder) as server, connect(server.address) as tape.client, tape.watching():
        await tape.client.tools.SubmitToolResult(session_id=tape.session_id, tool_call_id=call.id, output="stars")
        await tape.ended(accepted.turn_id)
        return {"killed-with-a-call": await tape.recorded("The server is killed while a call waits; the turn goes on.")}


async def pruned(folder: Path) -> dict[str, Recording]:
    """The place of a client is no longer kept."""
    async with stage(folder, "[storage]\nretained_events_per_session = 10\n") as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching():
            await say(tape, "one")
            await tape.rested()
        for number in range(MANY):
            await client.sessions.UpdateSession(change_of(tape.session_id, title=f"{number}"))
        async with tape.watching():
            await tape.until(lambda: tape.held.needs_reread)
        resumed = tape.asked_to_reread(
            "The events behind the client's place are no longer kept: it must read the list."
        )
        continued = Tape(client, tape.session_id, await listing(client, tape.session_id))
        async with continued.watching():
            await say(continued, "And on.")
            return {
                "resync": resumed,
                "resync-read": await continued.recorded("After a resync the client has read the list, and goes on."),
            }


SCENES = (killed, killed_with_a_call, pruned)
