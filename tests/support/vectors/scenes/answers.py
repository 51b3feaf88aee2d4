"""Answers that come at once, that stream, that are cut, fail, are refused, or are tried again."""

from pathlib import Path

from opencode.event.event_pb2 import DELTA_MODE_NONE
from tests.support.clients.conversation import new_session
from tests.support.vectors.recording import Cut, Recording
from tests.support.vectors.stage import WORLDS, say, send, stage, taped
from tests.support.vectors.tape import Tape

SLOWLY = f"/rate 40\n/reason Let me think: één, 世界, 🌍.\n{WORLDS}\n{WORLDS}"


async def quick_answer(folder: Path) -> dict[str, Recording]:
    """A client that asked for no deltas."""
    async with stage(folder) as client:
        tape = Tape(client, await new_session(client))
        async with tape.watching(delta_mode=DELTA_MODE_NONE):
            await say(tape, f"Hello.\n{WORLDS}", sender="ada", sender_name="Ada", metadata_json='{"from": "a test"}')
            await say(tape, "/reason Hm.\n/words 300")
            return {"quick-answer": await tape.recorded("Answers come whole, in part_finished, without one delta.")}


async def streamed_answer(folder: Path) -> dict[str, Recording]:
    """The same stream, cut in three ways."""
    async with taped(folder) as tape:
        await say(tape, SLOWLY)
        assert tape.of_kind("part_delta")
        return {
            "streamed-answer": await tape.recorded(
                "Reasoning and text stream in deltas, one behind the other.", Cut.IN_ORDER
            ),
            "overlapping-deltas": await tape.recorded(
                "Deltas come twice, and begin within what the client has, also between characters of several bytes.",
                Cut.OVERLAPPING,
            ),
            "missing-deltas": await tape.recorded(
                "Deltas are missing, as for a slow reader: those behind a gap wait for part_finished.", Cut.WITH_GAPS
            ),
        }


async def streaming(folder: Path) -> dict[str, Recording]:
    """The file ends while the answer streams."""
    async with taped(folder) as tape:
        await send(tape, f"/rate 40\n/reason Let me think.\n{WORLDS}\n/sleep 600\nNever said.")
        await tape.until_text(WORLDS)
        found = {
            "streaming": await tape.recorded("The file ends in the middle of an answer.", Cut.IN_ORDER),
            "streaming-overlapping": await tape.recorded(
                "The file ends in the middle of an answer whose deltas overlap.", Cut.OVERLAPPING
            ),
            "streaming-with-gaps": await tape.recorded(
                "The file ends in the middle of an answer whose deltas have gaps: the text ends before the first one. "
                "The server has more.",
                Cut.WITH_GAPS,
            ),
        }
        await tape.client.messages.AbortSession(session_id=tape.session_id)
        await tape.until_kind("turn_ended")
        found["aborted"] = await tape.recorded("The answer is aborted; what came of it stays.", Cut.IN_ORDER)
        return found


async def failures(folder: Path) -> dict[str, Recording]:
    """Each kind of bad end, and a retry."""
    async with taped(folder, "[retries]\nfirst_delay_seconds = 0.05\nmax_retries = 2\n") as tape:
        await say(tape, "/flaky unavailable 2\nHere I am.")
        assert len(tape.of_kind("retry_scheduled")) == 2
        await say(tape, "/error refused")
        await say(tape, "/cut 3\none two three four five")
        await say(tape, "/error failed 2\none two three four five")
        await say(tape, "/refuse I will not.")
        await say(tape, "/finish length\nThis is too")
        return {"failures": await tape.recorded("Model calls are tried again, refused, cut, and fail.")}


async def heartbeat(folder: Path) -> dict[str, Recording]:
    """Nothing happens for a while."""
    async with taped(folder, "[server]\nheartbeat_seconds = 0.1\n") as tape:
        await say(tape, "Hello.")
        await tape.rested()
        count = len(tape.of_kind("heartbeat"))
        await tape.until_kind("heartbeat", count + 1)
        return {"heartbeat": await tape.recorded("Nothing happens for a while, and the server says so.")}


SCENES = (quick_answer, streamed_answer, streaming, failures, heartbeat)
