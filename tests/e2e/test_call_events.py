"""The events of a tool call: one order, whatever API the model answers in."""

from pathlib import Path

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import PART_STATUS_COMPLETE, PART_STATUS_STREAMING
from opencode.message.message_pb2 import SendMessageRequest
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.clients.conversation import Watch, ask, displayed, messages_of, model, new_session, tool, watching
from tests.support.models.scripts import APIS, Call, Say, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import connect, running_server

NUMBER = '{"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}'

LARGE = '{"n": "' + "9" * 5000 + '"}'
"""Arguments that are checked in a thread."""

CALLS = (
    Call("fly", '{"n": 1}', "call_1"),
    Call("banned", '{"n": 1}', "call_2"),
    Call("count", '{"n": "one"}', "call_3"),
    Call("count", LARGE, "call_4"),
    Call("count", '{"n": 1}', "call_5"),
    Call("send", '{"n": 1}', "call_6"),
)
"""Not declared, denied, arguments that do not fit twice; a valid one, and one that asks for permission."""

WRONG_TYPE = "the arguments do not fit the tool's schema: n: "

PROVIDERS = (*APIS, "offline")


def configuration(api: str, provider: ProviderServer) -> str:
    """Returns the configuration with the model "mine/m", where one tool is denied and one asks."""
    rules = "[server]\nshutdown_grace_seconds = 0.1\n[permissions]\n'banned' = 'deny'\n'send' = 'ask'\n"
    return rules if api == "offline" else f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n{rules}"


def request(api: str, session_id: str) -> SendMessageRequest:
    """Returns the message that the model answers with the calls."""
    tools = [tool("count", NUMBER), tool("send", NUMBER), tool("banned", NUMBER)]
    if api == "offline":
        script = "\n".join(["I try.", *(f"/tool {call.name} {call.arguments}" for call in CALLS), "/step", "I see."])
        return ask(script, session_id, model=model("echo"), tools=tools)
    return ask("go", session_id, model=model("m", "mine"), tools=tools)


def story(events: list[SessionEvent]) -> list[tuple[str, int, str]]:
    """Returns what durable events told of parts and calls: kind, index of the part, status of the call."""
    told = []
    for event in events:
        if event.HasField("part_finished"):
            part = event.part_finished.part
            told.append(("part_finished", part.index, part.tool_use.status))
        elif event.HasField("tool_call_updated"):
            told.append(("tool_call_updated", event.tool_call_updated.part_index, event.tool_call_updated.state.status))
        elif event.HasField("message_finished") or event.HasField("permission_asked"):
            told.append((event.WhichOneof("kind"), -1, ""))
    return told


def finished_calls(events: list[SessionEvent]) -> list[ToolCallState]:
    """Returns the calls as the ends of their parts show them, in order of the parts."""
    parts = sorted((e.part_finished.part for e in events if e.HasField("part_finished")), key=lambda part: part.index)
    return [part.tool_use for part in parts if part.HasField("tool_use")]


@pytest.mark.matrix
@pytest.mark.parametrize("api", PROVIDERS)
async def test_the_end_of_a_call_tells_whether_it_is_refused(api: str, tmp_path: Path) -> None:
    """`part_finished` holds the error of a refused call and is its last event; a valid call waits once it is ready."""
    async with ProviderServer() as provider:
        if api in APIS:
            provider.enqueue(answer(api, Say("I try."), *CALLS))
        async with running_server(tmp_path, configuration(api, provider)) as server, connect(server.address) as client:
            session_id = await new_session(client)
            fold = SessionFold(session_id)
            async with watching(client, session_id, fold, after_sequence=0) as watch:
                await watch.until_kind("caught_up")  # what is replayed later may show a call as it is then
                accepted = await client.messages.SendMessage(request(api, session_id))
                await watch.until_kind("permission_asked")
                told = story(watch.events)
                await assert_never_pending(watch, refused=range(1, 5))
            shown = [call for message in await displayed(client, accepted.session_id) for call in message.tool_calls]
            folded, listed = fold.listed(), await messages_of(client, accepted.session_id)
    assert sorted(told[:7]) == [
        ("part_finished", 0, ""),
        ("part_finished", 1, "error"),
        ("part_finished", 2, "error"),
        ("part_finished", 3, "error"),
        ("part_finished", 4, "error"),
        ("part_finished", 5, "pending"),
        ("part_finished", 6, "pending"),
    ]
    assert told[7:] == [
        ("message_finished", -1, ""),
        ("tool_call_updated", 5, "pending"),
        ("tool_call_updated", 6, "pending"),
        ("permission_asked", -1, ""),
    ]
    calls = finished_calls(watch.events)
    assert [call.error for call in calls[:2]] == ["there is no tool named 'fly'", "the tool 'banned' is not permitted"]
    assert all(call.error.startswith(WRONG_TYPE) for call in calls[2:4])
    assert all(call.HasField("started_at") and call.HasField("finished_at") for call in calls[:4])
    assert not any(call.HasField(name) for call in calls[4:] for name in ("started_at", "permission_id", "error"))
    assert shown[:4] == calls[:4]
    assert [(call.status, call.HasField("started_at"), call.HasField("permission_id")) for call in shown[4:]] == [
        ("pending", True, False),
        ("pending", True, True),
    ]
    assert comparable(folded) == comparable(listed)


async def assert_never_pending(watch: Watch, refused: range) -> None:
    """No event and no snapshot shows an ended part with a refused call that waits."""
    for event in watch.events:
        parts = [event.part_finished.part, event.part_started.part, *event.message_snapshot.message.parts]
        for part in parts:
            if part.index in refused and part.HasField("tool_use") and part.status != PART_STATUS_STREAMING:
                assert (part.status, part.tool_use.status) == (PART_STATUS_COMPLETE, "error")
