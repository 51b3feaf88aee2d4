"""What a dead process left running goes on at the next start, or is ended."""

import asyncio

import msgspec

from tests.support.core_fakes import FakeStore, make_environment
from tests.support.domain_values import make_answer, make_message, make_turn, open_part
from turnwire.core.call_results import CallResult
from turnwire.core.turns import RESTARTED, Turns
from turnwire.domain.events import MessageAdded, SessionStatusChanged, TurnEnded
from turnwire.domain.messages import FinishReason, MessageStatus, MessageType, ModelRun, Text, ToolStatus, ToolUse
from turnwire.domain.money import Usage
from turnwire.domain.sessions import ToolDefinition
from turnwire.ports.store import NewEvent, PutMessage, PutTurn

CALL = ToolUse(name="read", call_id="c1", input_json="{}")
RUN = ModelRun(provider_id="offline", model_requested="echo")
STEP = make_answer("msg_1", "first step", usage=Usage(input_tokens=5), cost_pico_usd=5)


async def test_a_turn_that_was_left_running_is_ended_in_one_commit() -> None:
    """Its text is kept as interrupted, and the session is idle after its end."""
    streaming = make_answer("msg_2", open_part(0, Text("so far")), status=MessageStatus.STREAMING)
    store = FakeStore(conversation=(STEP, streaming), unfinished=(make_turn(),))
    await Turns(make_environment(store)).recover()
    [commit] = store.commits
    [message] = [change.message for change in commit.changes if isinstance(change, PutMessage)]
    assert (message.message_id, message.status) == ("msg_2", MessageStatus.INTERRUPTED)
    assert message.parts[0].content == Text("so far")
    assert commit.events[-2:] == (
        NewEvent(
            TurnEnded(
                finish_reason=FinishReason.INTERRUPTED,
                failure=RESTARTED.failure,
                usage=Usage(input_tokens=5),
                cost_pico_usd=5,
                steps=2,
            ),
            "trn_1",
        ),
        NewEvent(SessionStatusChanged(False)),
    )


async def test_the_cost_of_a_step_that_died_is_counted() -> None:
    """Its usage is known as far as it was saved, and so is its price: the turn's cost does not become unknown."""
    streaming = make_answer(
        "msg_2",
        open_part(0, Text("so far")),
        status=MessageStatus.STREAMING,
        usage=Usage(input_tokens=2),
        model_run=RUN,
    )
    store = FakeStore(conversation=(STEP, streaming), unfinished=(make_turn(),))
    await Turns(make_environment(store)).recover()
    [message] = [change.message for change in store.commits[0].changes if isinstance(change, PutMessage)]
    ended = store.commits[0].events[-2].kind
    assert isinstance(ended, TurnEnded)
    assert (message.cost_pico_usd, ended.usage, ended.cost_pico_usd) == (2, Usage(input_tokens=7), 7)


async def test_the_end_of_a_dead_turn_is_noted_for_people() -> None:
    """A host message says what happened, before the turn's end."""
    streaming = make_answer("msg_2", open_part(0, Text("so far")), status=MessageStatus.STREAMING)
    store = FakeStore(conversation=(streaming,), unfinished=(make_turn(),))
    await Turns(make_environment(store, settings={"host_messages": True})).recover()
    [commit] = store.commits
    added = [event.kind.message for event in commit.events if isinstance(event.kind, MessageAdded)]
    assert [(m.type, m.parts[0].content, m.metadata_json) for m in added] == [
        (
            MessageType.HOST,
            Text("The answer was cut off: the server was restarted during the turn"),
            '{"event": "turn_interrupted", "reason": "SERVER_RESTARTED"}',
        )
    ]
    assert isinstance(commit.events[-2].kind, TurnEnded)


async def test_a_turn_whose_call_is_open_waits_on() -> None:
    """Nothing ends; the session is busy with it, watchers get its message, and its result is taken."""
    calling = make_answer("msg_1", CALL, finish_reason=FinishReason.TOOL_USE)
    turn = make_turn(tools=(ToolDefinition("read", "", ""),))
    store = FakeStore(conversation=(make_message("msg_user", turn_id="trn_1"), calling), unfinished=(turn,))
    turns = Turns(make_environment(store))
    await turns.recover()
    [commit] = store.commits
    assert commit.changes == (PutTurn(msgspec.structs.replace(turn, steps=1)),)
    run = turns.run_of("ses_1")
    assert run is not None
    while run.calls is None:
        await asyncio.sleep(0)
    assert list(turns.open_messages()) == [calling]
    await run.calls.submit(0, CallResult(output="42"))
    assert run.calls.message.parts[0].content.status is ToolStatus.SUCCESS  # type: ignore[union-attr]
    await turns.aclose()
    assert not [e for c in store.commits for e in c.events if isinstance(e.kind, TurnEnded | SessionStatusChanged)]
