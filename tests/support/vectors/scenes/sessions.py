"""Scenes of sessions: settings, the archive, the end; messages without turns; summaries."""

from pathlib import Path

from opencode.message.content_pb2 import (
    FINISH_REASON_TOOL_USE,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_USER,
    ModelRun,
    TokenUsage,
)
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import ArchiveSessionRequest, DeleteSessionRequest, UnarchiveSessionRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from tests.support.clients.answers import append_answer, append_user, called, refusal, results_of, thought
from tests.support.clients.conversation import ask, change_of, file, messages_of, model, text
from tests.support.models.scripts import API_OF_PATH, Say, Tokens, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.vectors.recording import Recording, Want
from tests.support.vectors.stage import say, taped
from turnwire.core.context.summaries import INSTRUCTION


async def settings(folder: Path) -> dict[str, Recording]:
    """The settings change, and the session is put away."""
    async with taped(folder, title="Plans", labels={"team": "red"}) as tape:
        await say(tape, "one")
        sessions, session_id = tape.client.sessions, tape.session_id
        await sessions.UpdateSession(
            change_of(session_id, title="Pläne 世界", system="Be brief.", labels={"team": "blue"})
        )
        await sessions.UpdateSession(change_of(session_id, system=None, metadata_json='{"a": 1}'))
        await sessions.ArchiveSession(ArchiveSessionRequest(session_id=session_id))
        found = {"session-archived": await tape.recorded("The settings of a session change, and it is archived.")}
        await sessions.UnarchiveSession(UnarchiveSessionRequest(session_id=session_id))
        await say(tape, "two")
        found["session-settings"] = await tape.recorded("A session comes back from the archive, and goes on.")
        await sessions.DeleteSession(DeleteSessionRequest(session_id=session_id))
        await tape.until_kind("session_deleted")
        watches = [list(events) for events in tape.watches]
        found["session-deleted"] = Recording("The session is deleted.", watches, Want(deleted=True))
        return found


async def notes(folder: Path) -> dict[str, Recording]:
    """Messages without a turn, one of which is answered later, and one with a file."""
    async with taped(folder) as tape:
        stored = []
        for kind in (MESSAGE_TYPE_SYSTEM, MESSAGE_TYPE_USER, MESSAGE_TYPE_HOST):
            request = AppendMessageRequest(session_id=tape.session_id, type=kind, parts=[text("note")])
            stored.append((await tape.client.messages.AppendMessage(request)).message_id)
        found = {"notes": await tape.recorded("Messages are stored without a turn.")}
        started = await tape.client.turns.StartTurn(session_id=tape.session_id, user_message_id=stored[1])
        await tape.ended(started.turn.turn_id)
        request = ask("Look at this.", tape.session_id)
        request.parts.append(file(data=b"the plan", filename="plan.txt", mime="text/plain"))
        accepted = await tape.client.messages.SendMessage(request)
        await tape.ended(accepted.turn_id)
        found["notes-answered"] = await tape.recorded("A stored message moves behind the others when it is answered.")
        return found


async def compaction(folder: Path) -> dict[str, Recording]:
    """A conversation outgrows its model's window."""
    instruction = INSTRUCTION[:60]

    def reply(request: RecordedRequest) -> ScriptedReply:
        words = "They spoke of cats." if instruction in str(request.body) else "Yes."
        return answer(API_OF_PATH[request.path], Say(words), tokens=Tokens(len(str(request.body)) // 4, 5))

    async with ProviderServer(reply) as provider:
        toml = f"""
[providers.mine]
kind = 'openai_chat'
base_url = '{provider.base_url}'
[models."mine/m"]
context_window_tokens = 5000
[compaction]
threshold = 0.5
keep = 0.2
"""
        async with taped(folder, toml) as tape:
            for number in range(4):
                await say(tape, f"{number} " + "word " * 400, model=model("m", "mine"))
            assert tape.of_kind("context_compacted")
            assert tape.of_kind("compaction_started")
            return {"compaction": await tape.recorded("Older messages are summarised while a turn begins.")}


async def appended(folder: Path) -> dict[str, Recording]:
    """An agent of somebody else's stores its answers; the server goes on from them."""
    async with taped(folder) as tape:
        client, session_id = tape.client, tape.session_id
        await append_user(client, session_id, "Look at both.")
        run = ModelRun(provider_id="theirs", model_requested="m", model_served="m-1", response_id="r")
        picture = file(data=b"a chart", filename="chart.txt", mime="text/plain")
        parts = (thought("Two calls."), text("I look."), picture, called("c1"), called("c2"), called("c3", "a dog"))
        usage = TokenUsage(input_tokens=7, output_tokens=3)
        answer_id = await append_answer(
            client,
            session_id,
            *parts,
            model_run=run,
            usage=usage,
            cost_pico_usd=9,
            finish_reason=FINISH_REASON_TOOL_USE,
        )
        found = {"appended": await tape.recorded("An answer is stored without a turn: two of its calls are open.")}
        await client.messages.AppendMessage(results_of(session_id, ("c2", "a bird")))
        [call_id] = [
            part.tool_use.id
            for message in await messages_of(client, session_id)
            for part in message.parts
            if part.tool_use.call_id == "c1"
        ]
        submitting = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output="gone", is_error=True)
        await client.tools.SubmitToolResult(submitting)
        started = await client.turns.StartTurn(session_id=session_id, user_message_id=answer_id)
        await tape.ended(started.turn.turn_id)
        await append_answer(client, session_id, refusal("No more."))
        words = "Results come for calls of a stored answer, and a turn goes on behind them."
        found["appended-results"] = await tape.recorded(words)
        return found


SCENES = (settings, notes, appended, compaction)
