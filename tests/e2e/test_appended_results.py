"""Results that come as messages, after the turn of their call has ended."""

from pathlib import Path

from opencode.message.content_pb2 import MESSAGE_TYPE_TOOL_RESULT, ToolResultContent
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart
from tests.support.clients.conversation import ask, tool, turn_ended, watching
from tests.support.servers.running import connect, running_server


async def test_nothing_of_a_turn_comes_after_its_end(tmp_path: Path) -> None:
    """The result of a call that nobody answered changes the call, and is no event of the turn any more."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/tool look {}\n/error failed", tools=[tool("look")]))
        session_id = accepted.session_id
        await turn_ended(client, accepted)
        async with watching(client, session_id, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            (call,) = [e.tool_call_updated.state for e in watch.events if e.HasField("tool_call_updated")][-1:]
            part = MessagePart(tool_result=ToolResultContent(call_id=call.call_id, output="a cat"))
            await client.messages.AppendMessage(
                AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_TOOL_RESULT, parts=[part])
            )
            updated = await watch.until(lambda event: event.tool_call_updated.state.output == "a cat")
        of_the_turn = [event for event in watch.events if event.turn_id == accepted.turn_id]
        assert updated.tool_call_updated.state.id == call.id
        assert of_the_turn[-1].HasField("turn_ended")
