"""Clients that join: with nothing, with a list, and while an answer streams."""

from pathlib import Path

from tests.support.clients.conversation import new_session, talk
from tests.support.vectors.recording import Cut, Recording
from tests.support.vectors.stage import WORLDS, held_model, send, stage
from tests.support.vectors.tape import Tape, listing


async def join_in_mid_answer(folder: Path) -> dict[str, Recording]:
    """Two clients join one answer: one without a place, one with a list."""
    async with held_model() as held, stage(folder, held.toml) as client:
        session_id = await new_session(client, title="Joined")
        await talk(client, "Before.", session_id)
        first = Tape(client, session_id)
        async with first.watching():
            accepted = await send(first, "Think.", model=held.name)
            await first.until_text(WORLDS)
            await first.rested()
            bare, listed = Tape(client, session_id), Tape(client, session_id, await listing(client, session_id))
            async with bare.watching(from_here=True), listed.watching():
                held.goes_on.set()
                for tape in (bare, listed):
                    await tape.ended(accepted.turn_id)
                return {
                    "join-without-a-place": await bare.recorded(
                        "A client without a place joins in mid-answer by a snapshot; it holds no older messages.",
                        Cut.IN_ORDER,
                    ),
                    "join-with-a-list": await listed.recorded(
                        "A client lists the messages in mid-answer and watches from there; deltas overlap.",
                        Cut.OVERLAPPING,
                    ),
                }


async def join_and_resume(folder: Path) -> dict[str, Recording]:
    """A watch breaks in mid-answer; another one goes on, from the last token and from an older one."""
    async with held_model() as held, stage(folder, held.toml) as client:
        session_id = await new_session(client)
        resumed, again = Tape(client, session_id), Tape(client, session_id)
        async with resumed.watching(), again.watching():
            accepted = await send(resumed, "Think.", model=held.name)
            for tape in (resumed, again):
                await tape.until_text(WORLDS)
            await resumed.rested()
        async with resumed.watching(), again.watching(again=True):
            held.goes_on.set()
            for tape in (resumed, again):
                await tape.ended(accepted.turn_id)
            return {
                "resumed": await resumed.recorded(
                    "The watch breaks in mid-answer; another one goes on from the last token.", Cut.IN_ORDER
                ),
                "resumed-from-before": await again.recorded(
                    "The watch breaks in mid-answer; another one begins at the first event, so all of it comes again.",
                    Cut.OVERLAPPING,
                ),
            }


async def list_alone(folder: Path) -> dict[str, Recording]:
    """A list with waiting messages, behind which nothing happens."""
    async with stage(folder) as client:
        session_id = await new_session(client)
        await talk(client, "Before.", session_id)
        first = Tape(client, session_id)
        async with first.watching():
            await send(first, f"/rate 40\n{WORLDS}\n/sleep 600")
            await first.until_text(WORLDS)
            for words in ("one", "two"):
                await send(first, words)
            await first.rested()
            listed = Tape(client, session_id, await listing(client, session_id))
            async with listed.watching():
                found = await listed.recorded(
                    "A list with an answer that streams and messages that wait, then a watch."
                )
        await client.messages.AbortSession(session_id=session_id)
        return {"list-with-waiting": found}


SCENES = (join_in_mid_answer, join_and_resume, list_alone)
