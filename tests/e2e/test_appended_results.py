"""Results that come as messages: for a call whose turn has ended, and for none."""

from pathlib import Path

from opencode.message.content_pb2 import MESSAGE_TYPE_TOOL_RESULT, ToolResultContent
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart
from tests.support.clients.conversation import (
    ask,
    displayed,
    messages_of,
    new_session,
    refused,
    tool,
    turn_ended,
    watching,
)
from tests.support.clients.tool_calls import LOOK, pending_calls
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server


def append_result(session_id: str, call_id: str, output: str, **fields: str) -> AppendMessageRequest:
    """Returns the request that stores a tool result as a message."""
    part = MessagePart(tool_result=ToolResultContent(call_id=call_id, output=output, **fields))
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_TOOL_RESULT, parts=[part])


async def test_appended_result_is_folded_into_its_call(tmp_path: Path) -> None:
    """A call that nobody answered takes the result of a message, which is no display message of its own any more."""
    toml = "[defaults]\nhost_messages = false"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask(f"{LOOK}\n/error failed", tools=[tool("look")]))
        await turn_ended(client, accepted)
        (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
        await client.messages.AppendMessage(append_result(accepted.session_id, call.call_id, "a cat"))
        shown = await displayed(client, accepted.session_id)
        assert [(c.status, c.output) for m in shown for c in m.tool_calls] == [("success", "a cat")]
        assert len(shown) == 2
        assert len(await messages_of(client, accepted.session_id)) == 3


async def test_nothing_of_a_turn_comes_after_its_end(client: Client) -> None:
    """A result that is folded into a call of an ended turn is news of the session: the fold refuses other events."""
    accepted, (call,) = await pending_calls(client, LOOK)
    await client.messages.AbortSession(session_id=accepted.session_id)
    await client.messages.AppendMessage(append_result(accepted.session_id, call.call_id, "a cat"))
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(await messages_of(client, accepted.session_id))


async def test_appended_result_without_a_call_is_shown_by_itself(client: Client) -> None:
    """It reads "system" and keeps its own message."""
    session_id = await new_session(client)
    await client.messages.AppendMessage(append_result(session_id, "unknown", "a cat"))
    (shown,) = await displayed(client, session_id)
    assert (shown.role, shown.message_type) == ("system", MESSAGE_TYPE_TOOL_RESULT)


async def test_appended_result_may_name_the_servers_id_of_its_call(client: Client) -> None:
    """It is shown with the call, and the message tells both ids; an unknown one is refused."""
    accepted, (call,) = await pending_calls(client, LOOK)
    await client.messages.AbortSession(session_id=accepted.session_id)
    unknown = append_result(accepted.session_id, "", "a cat", tool_call_id="prt_unknown")
    assert (await refused(client.messages.AppendMessage(unknown))).reason == "TOOL_CALL_NOT_FOUND"
    appended = await client.messages.AppendMessage(
        append_result(accepted.session_id, "", "a cat", tool_call_id=call.id)
    )
    stored = {message.message_id: message for message in await messages_of(client, accepted.session_id)}
    (part,) = stored[appended.message_id].parts
    assert (part.tool_result.tool_call_id, part.tool_result.call_id) == (call.id, call.call_id)
    (shown,) = [state for m in await displayed(client, accepted.session_id) for state in m.tool_calls]
    assert (shown.id, shown.output) == (call.id, "a cat")


async def test_appended_result_for_an_awaited_call_is_refused(client: Client) -> None:
    """It says to use SubmitToolResult, by whichever id the call is named."""
    accepted, (call,) = await pending_calls(client, LOOK)
    refusal = await refused(client.messages.AppendMessage(append_result(accepted.session_id, call.call_id, "a cat")))
    assert refusal.fields == ["parts[0].tool_result.call_id"]
    named = append_result(accepted.session_id, "", "a cat", tool_call_id=call.id)
    assert (await refused(client.messages.AppendMessage(named))).fields == ["parts[0].tool_result.tool_call_id"]


async def test_result_after_the_end_is_no_event_of_the_turn(tmp_path: Path) -> None:
    """The result of a call that nobody answered changes the call, and is no event of the turn any more."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/tool look {}\n/error failed", tools=[tool("look")]))
        session_id = accepted.session_id
        await turn_ended(client, accepted)
        async with watching(client, session_id, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            (call,) = [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")][-1:]
            part = MessagePart(tool_result=ToolResultContent(call_id=call.call_id, output="a cat"))
            await client.messages.AppendMessage(session_id=session_id, type=MESSAGE_TYPE_TOOL_RESULT, parts=[part])
            updated = await watch.until(lambda event: event.tool_call_updated.state.output == "a cat")
        of_the_turn = [event for event in watch.events if event.turn_id == accepted.turn_id]
        assert updated.tool_call_updated.state.id == call.id
        assert of_the_turn[-1].HasField("turn_ended")
