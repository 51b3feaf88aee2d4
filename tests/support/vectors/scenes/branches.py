"""Conversations that lose messages or get others: answered again, edited, taken back, brought back, copied."""

from pathlib import Path

from opencode.session.session_pb2 import ClearSessionRequest, RestoreSessionRequest, RevertSessionRequest
from tests.support.clients.conversation import FOREVER, text
from tests.support.vectors.recording import Recording
from tests.support.vectors.stage import held_commit, say, send, taped
from tests.support.vectors.tape import Tape, listing
from turnwire.domain.conversation.events import ConversationChanged


async def alternatives(folder: Path) -> dict[str, Recording]:
    """An answer is made again, its question edited, and the first answer chosen again."""
    async with taped(folder) as tape:
        one = await say(tape, "one")
        await say(tape, "two")
        first = tape.held.messages[1].message_id
        await _again(tape, one.message_id)
        found = {
            "regenerated": await tape.recorded("The first question is answered again; all behind it leaves the path.")
        }
        await _again(tape, one.message_id, "uno", "due")
        await say(tape, "three")
        found["question-edited"] = await tape.recorded("The first question is edited and answered, then another one.")
        await tape.client.turns.SelectAlternative(session_id=tape.session_id, message_id=first)
        found |= await _reread(tape, "alternative-selected", "The first answer is chosen again, with what followed it")
        return found


async def waiting_regeneration(folder: Path) -> dict[str, Recording]:
    """A question is to be answered again while a turn runs."""
    async with taped(folder) as tape:
        one = await say(tape, "one")
        running = await send(tape, FOREVER)
        await tape.until_begun()
        made = await tape.client.turns.RegenerateMessage(session_id=tape.session_id, message_id=one.message_id)
        found = {"regeneration-waits": await tape.recorded("A copy of the question waits behind the running turn.")}
        await tape.client.messages.AbortSession(session_id=tape.session_id, keep_queue=True)
        await tape.ended(running.turn_id)
        await tape.ended(made.turn.turn_id)
        found["regenerated-later"] = await tape.recorded("The copy goes, and the question is answered again.")
        return found


async def waiting_edit(folder: Path) -> dict[str, Recording]:
    """A client with a list joins when an edited question has left the queue, and its turn is not stored yet."""
    async with taped(folder) as tape:
        one = await say(tape, "one")
        await send(tape, FOREVER)
        await tape.until_begun()
        made = await tape.client.turns.RegenerateMessage(
            session_id=tape.session_id, message_id=one.message_id, new_parts=[text("uno")]
        )
        await tape.rested()
        listed = Tape(tape.client, tape.session_id, await listing(tape.client, tape.session_id))
        with held_commit(ConversationChanged) as held:
            await tape.client.messages.AbortSession(session_id=tape.session_id, keep_queue=True)
            await held.is_there.wait()
            async with listed.watching():
                held.goes_on.set()
                await listed.ended(made.turn.turn_id)
                return {
                    "question-edited-later": await listed.recorded(
                        "The queue of a snapshot leaves out an edited question whose turn begins behind it."
                    )
                }


async def rewinds(folder: Path) -> dict[str, Recording]:
    """Messages are taken back, brought back, and all is cleared."""
    async with taped(folder) as tape:
        sent = [await say(tape, words) for words in ("one", "two", "three")]
        sessions, session_id = tape.client.sessions, tape.session_id
        await sessions.RevertSession(RevertSessionRequest(session_id=session_id, before_message_id=sent[1].message_id))
        found = {"reverted": await tape.recorded("The second message and all behind it are taken back.")}
        await say(tape, "four")
        found["reverted-and-on"] = await tape.recorded("Another message follows those that stay.")
        await sessions.ClearSession(ClearSessionRequest(session_id=session_id))
        found["cleared"] = await tape.recorded("The conversation is cleared.")
        await sessions.RestoreSession(RestoreSessionRequest(session_id=session_id))
        found |= await _reread(tape, "restored", "What was cleared comes back")
        return found


async def forked(folder: Path) -> dict[str, Recording]:
    """A copy of a session."""
    async with taped(folder) as tape:
        await say(tape, "one")
        copy = (await tape.client.sessions.ForkSession(session_id=tape.session_id)).session
        other = Tape(tape.client, copy.id)
        async with other.watching():
            return await _reread(other, "forked", "A session that is a copy of another one")


async def _again(tape: Tape, message_id: str, *words: str) -> None:
    made = await tape.client.turns.RegenerateMessage(
        session_id=tape.session_id, message_id=message_id, new_parts=[text(one) for one in words]
    )
    await tape.ended(made.turn.turn_id)


async def _reread(tape: Tape, name: str, what: str) -> dict[str, Recording]:
    """Returns the recording up to the reread, and one that begins with the list that was read then."""
    await tape.until(lambda: tape.held.needs_reread)
    asked = tape.asked_to_reread(f"{what}: the client must read the list.")
    continued = Tape(tape.client, tape.session_id, await listing(tape.client, tape.session_id))
    async with continued.watching():
        await say(continued, "And on.")
        return {
            name: asked,
            f"{name}-read": await continued.recorded(f"{what}: the client has read the list, and goes on."),
        }


SCENES = (alternatives, waiting_regeneration, waiting_edit, rewinds, forked)
