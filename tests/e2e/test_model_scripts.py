"""The scripted answers of the tests are read by the real SDKs and adapters as what they are meant to say."""

from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_STOP
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from tests.support.clients.conversation import ask, messages_of, model, tool, watching, words_of
from tests.support.models.scripts import APIS, CHECKS, Call, Say, Think, Tokens, answer
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import connect, running_server


@pytest.mark.parametrize("api", APIS)
async def test_scripted_answers_are_whole(api: str, tmp_path: Path) -> None:
    """Reasoning, text and a call with its result; the request that follows is one that the API takes."""
    async with ProviderServer() as provider:
        toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"
        provider.enqueue(
            answer(api, Think("hm"), Say("I look."), Call("look", '{"n":1.0}', "call_9"), tokens=Tokens(7, 3))
        )
        provider.enqueue(answer(api, Say("A cat.")))
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("look", model=model("m", "mine"), tools=[tool("look")]))
            async with watching(client, accepted.session_id, after_sequence=0) as watch:
                state = (await watch.until_kind("tool_call_updated")).tool_call_updated.state
                await client.tools.SubmitToolResult(
                    SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=state.id, output="cat")
                )
                ended = (await watch.until_turn_ended(accepted.turn_id)).turn_ended.turn
            assert (ended.finish_reason, ended.steps, ended.usage.input_tokens) == (FINISH_REASON_STOP, 2, 17)
            _, first, last = await messages_of(client, accepted.session_id)
    shown = [(part.WhichOneof("content"), part.reasoning.text or part.text.text) for part in first.parts]
    assert shown == [("reasoning", "hm"), ("text", "I look."), ("tool_use", "")]
    assert (state.input_json, state.call_id, words_of(last)) == ('{"n":1.0}', "call_9", "A cat.")
    assert [CHECKS[api](request.body) for request in provider.requests] == [[], []]
