"""Answers of models that the caller asked itself: stored, shown, and gone on from by turns of the server."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_USE,
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    ModelRun,
    ProviderContent,
    TokenUsage,
    ToolResultContent,
)
from opencode.message.message_pb2 import AppendedToolCall, AppendMessageRequest, MessagePart
from opencode.session.session_pb2 import Budget, ForkSessionRequest, RevertSessionRequest
from opencode.tool.tool_pb2 import ClaimToolCallRequest, SubmitToolResultRequest, ToolResultFile
from opencode.turn.turn_pb2 import BUSY_POLICY_QUEUE, TURN_STATUS_RUNNING, TurnSettings
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest, StartTurnRequest
from tests.support.clients.answers import answer_of, append_answer, append_user, called, refusal, results_of, thought
from tests.support.clients.archives import bring, export
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    kinds,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    tool,
    watching,
    words_of,
)
from tests.support.models.scripts import API_OF_PATH, APIS, CHECKS, Call, Say, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants

SAID = ModelRun(provider_id="theirs", model_requested="m", model_served="m-1", response_id="r_1")


async def start(client: Client, session_id: str, message_id: str, **fields: Any) -> Any:
    """Starts a turn at a message."""
    request = StartTurnRequest(session_id=session_id, user_message_id=message_id, **fields)
    return await client.turns.StartTurn(request)


async def ended(client: Client, session_id: str, started: Any) -> Any:
    """Waits for the end of a turn that StartTurn or RegenerateMessage began."""
    async with watching(client, session_id, resume_token=started.resume_token) as watch:
        return (await watch.until_turn_ended(started.turn.turn_id)).turn_ended.turn


async def folded(client: Client, session_id: str) -> None:
    """Checks that the events from the first one on make what is listed."""
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))


async def submit(client: Client, session_id: str, call_id: str, output: str, **fields: Any) -> Any:
    """Submits the result of a call."""
    request = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output=output, **fields)
    return await client.tools.SubmitToolResult(request)


async def call_states(client: Client, session_id: str) -> list[tuple[str, str]]:
    """Returns status and result of each call in display form."""
    shown = await displayed(client, session_id)
    return [(call.status, call.output or call.error) for message in shown for call in message.tool_calls]


async def open_call(client: Client, *call_ids: str) -> tuple[str, str, list[str]]:
    """Returns a new session whose answer has open calls, the answer's id and the ids of the calls."""
    session_id = await new_session(client)
    await append_user(client, session_id, "look")
    message_id = await append_answer(client, session_id, *map(called, call_ids or ("c1",)))
    stored = (await messages_of(client, session_id))[-1]
    return session_id, message_id, [part.tool_use.id for part in stored.parts]


async def test_an_answer_is_stored_with_all_that_it_says(client: Client) -> None:
    """In order, word for word, with what the caller reports of it; told by one event, which has all of it."""
    session_id = await new_session(client)
    await append_user(client, session_id, "look")
    appended = await client.messages.AppendMessage(
        answer_of(
            session_id,
            thought("hm"),
            text("\n\n"),
            refusal("no"),
            file(data=b"chart", filename="chart.txt"),
            called("c1", "a cat"),
            called("c2", "gone", is_error=True),
            called("c3"),
            model_run=SAID,
            finish_reason=FINISH_REASON_TOOL_USE,
            provider_finish_reason="tool_calls",
            usage=TokenUsage(input_tokens=12, output_tokens=3),
            cost_pico_usd=9,
            sender="agent",
            metadata_json='{"run":1}',
        )
    )
    stored = (await messages_of(client, session_id))[-1]
    assert (stored.type, stored.status, stored.turn_id) == (MESSAGE_TYPE_ASSISTANT, MESSAGE_STATUS_COMPLETE, "")
    contents = [part.WhichOneof("content") for part in stored.parts]
    assert contents == ["reasoning", "text", "refusal", "file", "tool_use", "tool_use", "tool_use"]
    assert [part.tool_use.status for part in stored.parts[4:]] == ["success", "error", "pending"]
    assert (stored.parts[1].text.text, stored.parts[4].tool_use.input_json) == ("\n\n", '{"at":"it"}')
    assert not any(part.tool_use.HasField("started_at") for part in stored.parts[4:])
    expected = ModelRun(is_reported=True)
    expected.MergeFrom(SAID)
    assert (stored.model_run, stored.cost_pico_usd, stored.usage.input_tokens) == (expected, 9, 12)
    assert (stored.finish_reason, stored.provider_finish_reason) == (FINISH_REASON_TOOL_USE, "tool_calls")
    shown = (await displayed(client, session_id))[-1]
    assert (shown.role, shown.model_run.is_reported, shown.tokens_output) == ("assistant", True, 3)
    assert list(shown.reasoning_parts) == ["hm"]
    assert list(shown.text_parts) == ["\n\n", "no"]
    async with watching(client, session_id, resume_token=appended.resume_token) as watch:
        await watch.until_kind("caught_up")
    assert kinds(watch.events)[0] == "message_added"
    assert watch.events[0].message_added.message == stored
    await folded(client, session_id)


async def test_nothing_is_stored_of_a_wrong_answer(client: Client) -> None:
    """Each wrong field is named, what only its provider understands above all."""
    session_id = await new_session(client)
    sealed = MessagePart(provider=ProviderContent(kind="reasoning.encrypted"))
    found = await refused(client.messages.AppendMessage(answer_of(session_id, text("a"), sealed, called("c", name=""))))
    assert found.code == grpc.StatusCode.INVALID_ARGUMENT
    assert found.fields == ["parts[1].provider", "parts[2].tool_call.name"]
    sending = ask("a", session_id)
    sending.parts.append(called("c"))
    assert (await refused(client.messages.SendMessage(sending))).fields == ["parts[1].tool_call"]
    assert await messages_of(client, session_id) == []


async def test_a_message_too_large_is_refused(tmp_path: Path) -> None:
    """Arguments and results count towards the limit."""
    async with running_server(tmp_path, "[limits]\nmax_message_bytes = 2000") as server, connect(server.address) as one:
        session_id = await new_session(one)
        for part in (called("c", "x" * 2000), called("c", input_json="x" * 2000), thought("x" * 2001)):
            found = await refused(one.messages.AppendMessage(answer_of(session_id, part)))
            assert (found.reason, found.fields) == ("MESSAGE_TOO_LARGE", ["parts"])
        assert await messages_of(one, session_id) == []


async def test_a_named_append_is_carried_out_once(client: Client) -> None:
    """A retry answers the first; with other content it is refused."""
    session_id = await new_session(client)
    request = answer_of(session_id, called("c1"), request_id=f"answer of {session_id}")
    one, two = await asyncio.gather(*(client.messages.AppendMessage(request) for _ in range(2)))
    assert one.message_id == two.message_id
    request.parts[0].tool_call.result.output = "it"
    assert (await refused(client.messages.AppendMessage(request))).reason == "REQUEST_ID_REUSED"
    assert len(await messages_of(client, session_id)) == 1


async def test_an_open_call_takes_the_result_that_is_submitted(client: Client) -> None:
    """With its files; the same again answers the same, another one is too late. No client is told to run the call."""
    session_id, _, [call_id] = await open_call(client)
    listed = await client.tools.ListOpenToolCalls(session_id=session_id)
    assert list(listed.calls) == []
    claiming = ClaimToolCallRequest(session_id=session_id, tool_call_id=call_id, holder="one")
    assert (await refused(client.tools.ClaimToolCall(claiming))).reason == "TOOL_CALL_ALREADY_SETTLED"
    assert (await refused(submit(client, session_id, call_id, "it", lease_id="lse_none"))).reason == "LEASE_LOST"
    files = [ToolResultFile(data=b"pixels", filename="a.txt")]
    settled = await submit(client, session_id, call_id, "a cat", files=files)
    assert (settled.tool_call.status, settled.tool_call.output) == ("success", "a cat")
    assert [one.filename for one in settled.tool_call.files] == ["a.txt"]
    again = await submit(client, session_id, call_id, "a cat", files=files)
    assert again.tool_call == settled.tool_call
    assert (await refused(submit(client, session_id, call_id, "a dog"))).reason == "TOOL_CALL_ALREADY_SETTLED"
    late = await client.messages.AppendMessage(results_of(session_id, ("c1", "a dog")))
    assert (await messages_of(client, session_id))[-1].answers_message_id == ""
    assert await call_states(client, session_id) == [("success", "a cat")]
    assert late.message_id == (await messages_of(client, session_id))[-1].message_id
    await folded(client, session_id)


async def test_open_calls_take_results_that_are_appended(client: Client) -> None:
    """In any order, by either id; a call that is not there is an error, and nothing is stored of it."""
    session_id, message_id, call_ids = await open_call(client, "c1", "c2", "c3")
    await client.messages.AppendMessage(results_of(session_id, ("c3", "three"), ("c1", "one")))
    named = MessagePart(tool_result=ToolResultContent(tool_call_id=call_ids[1], output="two", is_error=True))
    request = results_of(session_id)
    request.parts.append(named)
    await client.messages.AppendMessage(request)
    assert await call_states(client, session_id) == [("success", "one"), ("error", "two"), ("success", "three")]
    assert {m.answers_message_id for m in (await messages_of(client, session_id))[2:]} == {message_id}
    request.parts[0].tool_result.tool_call_id = "prt_unknown"
    found = await refused(client.messages.AppendMessage(request))
    assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "TOOL_CALL_NOT_FOUND")
    assert len(await messages_of(client, session_id)) == 4
    await folded(client, session_id)


async def test_of_results_at_once_one_is_the_calls(client: Client) -> None:
    """Whichever way each of them comes."""
    session_id, _, [call_id] = await open_call(client)
    appended = [client.messages.AppendMessage(results_of(session_id, ("c1", f"a{n}"))) for n in range(3)]
    submitted = [submit(client, session_id, call_id, f"s{n}") for n in range(3)]
    await asyncio.gather(*appended, *submitted, return_exceptions=True)
    messages = await messages_of(client, session_id)
    [(status, output)] = await call_states(client, session_id)
    first = [m.parts[0].tool_result.output for m in messages if m.answers_message_id]
    assert status == "success"
    assert first == ([output] if output.startswith("a") else [])
    await folded(client, session_id)


@pytest.mark.matrix
@pytest.mark.parametrize("way", ["inline", "submitted", "appended", "stray"])
async def test_a_turn_goes_on_behind_results(client: Client, way: str) -> None:
    """However they came; nothing moves, and the answer follows them."""
    session_id = await new_session(client)
    await append_user(client, session_id, "look")
    call = called("c1", "a cat" if way == "inline" else None)
    at = answer_id = await append_answer(client, session_id, call)
    if way == "submitted":
        call_id = (await messages_of(client, session_id))[-1].parts[0].tool_use.id
        await submit(client, session_id, call_id, "a cat")
    elif way != "inline":
        at = (await client.messages.AppendMessage(results_of(session_id, ("c1", "a cat")))).message_id
    if way == "stray":
        at = (await client.messages.AppendMessage(results_of(session_id, ("unknown", "a dog")))).message_id
    note = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("note")])
    last = (await client.messages.AppendMessage(note)).message_id
    before = await messages_of(client, session_id)
    started = await start(client, session_id, at, busy_policy=BUSY_POLICY_QUEUE, request_id=f"on {session_id}")
    assert (started.turn.status, started.turn.user_message_id) == (TURN_STATUS_RUNNING, last)
    assert (await ended(client, session_id, started)).finish_reason == FINISH_REASON_STOP
    after = await messages_of(client, session_id)
    assert [m.message_id for m in after[:-1]] == [m.message_id for m in before]
    assert (after[-1].type, after[-1].answers_message_id) == (MESSAGE_TYPE_ASSISTANT, last)
    assert not after[-1].model_run.is_reported
    again = await start(client, session_id, at, busy_policy=BUSY_POLICY_QUEUE, request_id=f"on {session_id}")
    assert again.turn.turn_id == started.turn.turn_id
    assert (await refused(start(client, session_id, at))).reason == "TURN_EXISTS"
    await folded(client, session_id)
    forking = ForkSessionRequest(session_id=session_id)
    fork = await client.sessions.ForkSession(forking)
    assert len(await messages_of(client, fork.session.id)) == len(after)
    assert answer_id in {m.origin.message_id for m in await messages_of(client, fork.session.id)}


async def test_results_of_one_answer_come_together_or_not_at_all(client: Client) -> None:
    """A message of which only some results answer open calls is refused by the first that does not; nothing is stored.

    It was stored without settling any, and then no turn could begin.
    """
    session_id, _, _ = await open_call(client, "c1", "c2")
    await append_answer(client, session_id, called("c3"))
    await client.messages.AppendMessage(results_of(session_id, ("c1", "one")))
    before = await messages_of(client, session_id)
    for named, unfit in (
        ((("c1", "one"), ("c2", "two")), 0),
        ((("c2", "two"), ("unknown", "three")), 1),
        ((("c3", "three"), ("c2", "two")), 1),
        ((("c2", "two"), ("c2", "again")), 1),
    ):
        found = await refused(client.messages.AppendMessage(results_of(session_id, *named)))
        assert (found.code, found.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [f"parts[{unfit}].tool_result"])
    assert await messages_of(client, session_id) == before


async def test_no_turn_goes_on_behind_results_of_no_call(client: Client) -> None:
    """An answer without calls, or a question, may be before them: there is nothing to go on from."""
    for appended in (lambda at: append_answer(client, at, text("plain")), lambda at: append_user(client, at, "more")):
        session_id = await new_session(client)
        await append_user(client, session_id, "hi")
        await appended(session_id)
        result = await client.messages.AppendMessage(results_of(session_id, ("unknown", "one")))
        found = await refused(start(client, session_id, result.message_id))
        assert (found.code, found.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["user_message_id"])


async def test_no_turn_goes_on_where_calls_are_open_or_there_are_no_results(client: Client) -> None:
    """The error names the calls, or says what the message lacks; a turn of the newest question leaves the calls out."""
    session_id, message_id, call_ids = await open_call(client, "c1", "c2")
    for at in (message_id, (await client.messages.AppendMessage(results_of(session_id, ("c1", "one")))).message_id):
        found = await refused(start(client, session_id, at))
        assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOOL_CALLS_OPEN")
    assert found.metadata["toolCallIds"] == call_ids[1]
    question = await append_user(client, session_id, "and now?")
    assert (await refused(start(client, session_id, message_id))).fields == ["user_message_id"]
    explained = await client.messages.ExplainContext(session_id=session_id)
    assert "OPEN_CALL" in {repair.reason for repair in explained.repairs}
    await ended(client, session_id, await start(client, session_id, question))
    plain = await append_answer(client, session_id, text("done"))
    assert (await refused(start(client, session_id, plain))).fields == ["user_message_id"]
    system = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_SYSTEM, parts=[text("be brief")])
    instructions = (await client.messages.AppendMessage(system)).message_id
    assert (await refused(start(client, session_id, instructions))).fields == ["user_message_id"]


async def test_a_turn_behind_results_never_waits(client: Client) -> None:
    """The running turn would end the conversation otherwise."""
    session_id, _, _ = await open_call(client)
    at = (await client.messages.AppendMessage(results_of(session_id, ("c1", "one")))).message_id
    running = await start(client, session_id, await append_user(client, session_id, FOREVER))
    assert (await refused(start(client, session_id, at))).fields == ["user_message_id"]
    async with watching(client, session_id, resume_token=running.resume_token) as watch:
        await watch.until(lambda event: event.message_added.message.type == MESSAGE_TYPE_ASSISTANT)
    at = await append_answer(client, session_id, called("c2", "two"))
    assert (await refused(start(client, session_id, at, busy_policy=BUSY_POLICY_QUEUE))).reason == "TURN_IN_PROGRESS"
    await client.messages.AbortSession(session_id=session_id)
    await ended(client, session_id, running)
    await ended(client, session_id, await start(client, session_id, at))
    await folded(client, session_id)


async def test_a_question_with_an_appended_answer_has_one(client: Client) -> None:
    """StartTurn does not move it away from its answer; RegenerateMessage answers it again, and both can be chosen."""
    session_id = await new_session(client)
    question = await append_user(client, session_id, "hello")
    mine = await append_answer(client, session_id, text("mine"))
    assert (await refused(start(client, session_id, question))).reason == "TURN_EXISTS"
    request = RegenerateMessageRequest(session_id=session_id, message_id=question)
    await ended(client, session_id, await client.turns.RegenerateMessage(request))
    listed = await messages_of(client, session_id)
    assert [words_of(m) for m in listed] == ["hello", "hello"]
    assert listed[1].alternative_count == 2
    assert mine not in {m.message_id for m in listed}
    await folded(client, session_id)


async def test_what_is_reported_counts_nowhere(tmp_path: Path) -> None:
    """It is no usage of the tenant, and uses up no budget of the session."""
    async with server_of_tenants(tmp_path) as server, connect_as(server.address, "acme", "ann") as ann:
        session_id = await new_session(ann, budget=Budget(max_tokens=1000))
        usage = TokenUsage(input_tokens=10**9, output_tokens=10**9)
        await append_answer(ann, session_id, text("much"), model_run=SAID, usage=usage, cost_pico_usd=10**12)
        assert list((await ann.usage.QueryUsage()).rows) == []
        accepted = await talk(ann, "hello", session_id)
        assert accepted.session_id == session_id
        [row] = (await ann.usage.QueryUsage()).rows
        assert (row.steps, row.usage.input_tokens < 1000) == (1, True)
        assert (await messages_of(ann, session_id))[-1].finish_reason == FINISH_REASON_STOP


async def test_appended_answers_are_found_reverted_forked_and_moved(tmp_path: Path) -> None:
    """As others are; calls that are open stay open in a copy, and what is reported stays marked."""
    async with (
        server_of_tenants(tmp_path) as server,
        connect_as(server.address, "alice") as alice,
        connect_as(server.address, "bob") as bob,
    ):
        session_id = await new_session(alice)
        await append_user(alice, session_id, "look")
        parts = (thought("hm"), text("a marmalade cat"), called("c1", "one"), called("c2"))
        answer_id = await append_answer(alice, session_id, *parts, model_run=SAID, cost_pico_usd=9)
        hits = (await alice.search.SearchMessages(query="marmalade")).hits
        assert [hit.message_id for hit in hits] == [answer_id]
        revert = RevertSessionRequest(session_id=session_id, before_message_id=answer_id)
        await alice.sessions.RevertSession(revert)
        assert len(await messages_of(alice, session_id)) == 1
        await alice.sessions.RestoreSession(session_id=session_id)
        fork = (await alice.sessions.ForkSession(session_id=session_id)).session.id
        [moved] = [one for answered in await bring(bob, await export(alice, session_id)) for one in answered.sessions]
        for owner, copy in ((alice, fork), (bob, moved.session_id)):
            stored = (await messages_of(owner, copy))[-1]
            assert (stored.model_run.is_reported, stored.model_run.model_served) == (True, "m-1")
            assert (stored.cost_pico_usd, len(stored.parts)) == (9, 4)
            await submit(owner, copy, stored.parts[3].tool_use.id, "two")
            assert await call_states(owner, copy) == [("success", "one"), ("success", "two")]
            await ended(owner, copy, await start(owner, copy, stored.message_id))
        assert await call_states(alice, session_id) == [("success", "one"), ("pending", "")]


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_a_turn_of_the_server_goes_on_from_the_callers_answers(tmp_path: Path, api: str) -> None:
    """Every request keeps the rules of its API, and has the results."""
    async with ProviderServer(lambda request: answer(API_OF_PATH[request.path], Say("Yes."))) as provider:
        provider.enqueue(answer(api, Call("look", call_id="call_9")))
        toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n[defaults]\nmodel = 'mine/m'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = await new_session(client)
            await append_user(client, session_id, "look")
            run = ModelRun(provider_id="mine", model_requested="m")
            parts = (thought("hm"), text("I look."), called("c1"), called("c2", "a dog"), called("c3"))
            await append_answer(client, session_id, *parts, model_run=run)
            at = (
                await client.messages.AppendMessage(results_of(session_id, ("c3", "a bird"), ("c1", "a cat")))
            ).message_id
            started = await start(client, session_id, at, settings=TurnSettings(tools=[tool("look")]))
            async with watching(client, session_id, resume_token=started.resume_token) as watch:
                due = await watch.until(lambda event: event.tool_call_updated.state.status == "pending")
                await submit(client, session_id, due.tool_call_updated.state.id, "a fox")
                await watch.until_turn_ended(started.turn.turn_id)
            await append_answer(client, session_id, refusal("I will not."))
            await append_answer(client, session_id, thought("only thinking"))
            await talk(client, "and now?", session_id)
            assert len(provider.requests) == 3
            for request in provider.requests:
                assert CHECKS[api](request.body) == []
                sent = str(request.body)
                assert all(word in sent for word in ("a cat", "a dog", "a bird"))
            assert "a fox" in str(provider.requests[2].body)
            await folded(client, session_id)


async def test_a_call_of_any_name_may_be_appended(client: Client) -> None:
    """It may name a tool of the server or none, and have arguments that are no JSON, as models write them."""
    session_id = await new_session(client)
    odd = [AppendedToolCall(name=name, input_json="{") for name in ("files.read", "ünï", "n" * 1024)]
    await append_answer(client, session_id, *(MessagePart(tool_call=call) for call in odd))
    await talk(client, "hello", session_id)
    stored = (await messages_of(client, session_id))[0]
    assert [part.tool_use.name for part in stored.parts] == ["files.read", "ünï", "n" * 1024]
