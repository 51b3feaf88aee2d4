"""Messages that wait: edited, moved, removed, dropped; that interrupt; that join the running turn."""

from pathlib import Path

from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    MoveQueuedMessageRequest,
    RemoveQueuedMessageRequest,
)
from tests.support.clients.conversation import FOREVER, text, tool
from tests.support.vectors.recording import Recording
from tests.support.vectors.stage import held_commit, send, taped
from tests.support.vectors.tape import Tape, listing
from turnwire.domain.conversation.events import TurnSteered


async def queue(folder: Path) -> dict[str, Recording]:
    """Four messages wait; one is edited, one moved, one removed; then the others are answered."""
    async with taped(folder) as tape:
        await send(tape, FOREVER)
        await tape.until_begun()
        sent = [await send(tape, words) for words in ("one", "two", "three", "four")]
        ids = [accepted.message_id for accepted in sent]
        found = {"queue": await tape.recorded("Four messages wait behind a turn.")}
        turns, session_id = tape.client.turns, tape.session_id
        await turns.EditQueuedMessage(
            EditQueuedMessageRequest(session_id=session_id, message_id=ids[1], parts=[text("zwei"), text("deux")])
        )
        await turns.MoveQueuedMessage(
            MoveQueuedMessageRequest(session_id=session_id, message_id=ids[3], before_message_id=ids[0])
        )
        await turns.RemoveQueuedMessage(RemoveQueuedMessageRequest(session_id=session_id, message_id=ids[0]))
        found["queue-changed"] = await tape.recorded("Of messages that wait one is edited, one moved, one removed.")
        joined = Tape(tape.client, session_id)
        async with joined.watching(from_here=True):
            found["queue-joined"] = await joined.recorded(
                "A client without a place joins while messages wait that it does not hold."
            )
        await tape.client.messages.AbortSession(session_id=session_id, keep_queue=True)
        for accepted in (sent[3], sent[1], sent[2]):
            await tape.ended(accepted.turn_id)
        found["queue-answered"] = await tape.recorded("Messages that waited are answered in their new order.")
        return found


async def dropped(folder: Path) -> dict[str, Recording]:
    """An abort drops what waits."""
    async with taped(folder) as tape:
        await send(tape, FOREVER)
        await tape.until_begun()
        sent = [await send(tape, words) for words in ("one", "two")]
        await tape.client.messages.AbortSession(session_id=tape.session_id)
        for accepted in sent:
            await tape.ended(accepted.turn_id)
        return {"queue-dropped": await tape.recorded("An abort removes the messages that wait.")}


async def interrupt(folder: Path) -> dict[str, Recording]:
    """A message ends the running turn and is answered before those that waited."""
    async with taped(folder) as tape:
        await send(tape, f"Slowly.\n{FOREVER}")
        await tape.until_kind("part_finished")
        waits = await send(tape, "I wait.")
        await send(tape, "Now!", busy_policy=BUSY_POLICY_INTERRUPT)
        await tape.ended(waits.turn_id)
        return {"interrupt": await tape.recorded("A message ends the running turn and is answered next.")}


async def steer(folder: Path) -> dict[str, Recording]:
    """A message joins the running turn before its next step."""
    async with taped(folder) as tape:
        accepted = await send(tape, "I look.\n/tool look {}\n/step\nSeen.", tools=[tool("look")])
        call = (await tape.until_kind("tool_call_updated")).tool_call_updated.state
        await send(tape, "Look up, too.", busy_policy=BUSY_POLICY_STEER)
        found = {"steering": await tape.recorded("A message waits to join the running turn.")}
        await tape.client.tools.SubmitToolResult(session_id=tape.session_id, tool_call_id=call.id, output="stars")
        await tape.ended(accepted.turn_id)
        found["steered"] = await tape.recorded("A message joins the running turn before its next step.")
        return found


async def steer_together(folder: Path) -> dict[str, Recording]:
    """A client with a list joins when two messages have left the queue, and joined the turn nowhere but in memory."""
    async with taped(folder) as tape:
        accepted = await send(tape, "I look.\n/tool look {}\n/step\nSeen.", tools=[tool("look")])
        call = (await tape.until_kind("tool_call_updated")).tool_call_updated.state
        for words, policy in (("one", BUSY_POLICY_STEER), ("two", BUSY_POLICY_STEER), ("three", BUSY_POLICY_QUEUE)):
            last = await send(tape, words, busy_policy=policy)
        listed = Tape(tape.client, tape.session_id, await listing(tape.client, tape.session_id))
        with held_commit(TurnSteered) as held:
            await tape.client.tools.SubmitToolResult(session_id=tape.session_id, tool_call_id=call.id, output="stars")
            await held.is_there.wait()
            async with listed.watching():
                found = {"steering-together": await listed.recorded("A queue in a snapshot leaves out two that wait.")}
                held.goes_on.set()
                for turn_id in (accepted.turn_id, last.turn_id):
                    await listed.ended(turn_id)
                found["steered-together"] = await listed.recorded(
                    "The queue of a snapshot leaves out two messages that join the turn behind it."
                )
                return found


SCENES = (queue, dropped, interrupt, steer, steer_together)
