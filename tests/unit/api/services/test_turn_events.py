"""The events of one turn, out of the watch of its session."""

from collections.abc import AsyncGenerator

from tests.support.fakes.domain_values import NOW, make_answer, make_end, make_message, make_permission, make_turn
from tests.support.fakes.opened_store import kinds_in
from turnwire.api.services.turn_events import answered_by, events_of_turn
from turnwire.api.wire.codec import ProtoCodec
from turnwire.core.intake.requests import Receipt
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.messages import MessageStatus
from turnwire.domain.principal import BUILT_IN, Principal

RECEIPT = Receipt(session_id="ses_1", message_id="msg_user", turn_id="trn_1", sequence=4)
USER = make_message("msg_user", "hi", turn_id="trn_1")
ANSWER = make_answer("msg_1", status=MessageStatus.STREAMING)


class FakeWatches:
    """Yields given batches and remembers the request and whether it was closed."""

    def __init__(self, *batches: list[tuple[e.DurableKind | e.EphemeralKind, str]]) -> None:
        self._batches = batches
        self.requests: list[WatchRequest] = []
        self.closed = False

    async def watch(self, principal: Principal, request: WatchRequest) -> AsyncGenerator[bytes]:
        """Yields the batches."""
        self.requests.append(request)
        codec = ProtoCodec()
        try:
            for batch in self._batches:
                yield b"".join(
                    codec.encode_event(e.Event(session_id="ses_1", kind=kind, at=NOW, turn_id=turn_id))
                    for kind, turn_id in batch
                )
        finally:
            self.closed = True


async def _kinds(watches: FakeWatches) -> list[list[str]]:
    return [kinds_in(batch) async for batch in events_of_turn(watches, BUILT_IN, answered_by(RECEIPT))]  # type: ignore[arg-type]


def _end(turn_id: str = "trn_1") -> tuple[e.TurnEnded, str]:
    return make_end(turn_id), turn_id


async def test_heartbeats_pass() -> None:
    """A message that waits for its turn is not silent."""
    watches = FakeWatches([(e.Heartbeat(3), "")], [_end()])
    assert await _kinds(watches) == [["heartbeat"], ["turn_ended"]]


async def test_a_snapshot_of_the_turn_is_followed_by_its_deltas() -> None:
    """A watcher that fell behind gets the message as it stands, and goes on from there."""
    watches = FakeWatches(
        [(e.MessageAdded(ANSWER), "trn_1")],
        [(e.MessageSnapshot(ANSWER), ""), (e.PartDelta("msg_1", 0, 0, "a"), "")],
        [_end()],
    )
    assert await _kinds(watches) == [["message_added"], ["message_snapshot", "part_delta"], ["turn_ended"]]


async def test_open_permissions_of_the_turn_are_told() -> None:
    """A watcher that fell behind learns what the turn waits for, and nothing of other turns."""
    mine, other = make_permission("per_1"), make_permission("per_x", turn_id="trn_x")
    watches = FakeWatches([(e.PermissionSnapshot(other), "")], [(e.PermissionSnapshot(mine), "")], [_end()])
    assert await _kinds(watches) == [["permission_snapshot"], ["turn_ended"]]


async def test_logs_of_the_turns_tools_are_told() -> None:
    """They name a message of the turn."""
    watches = FakeWatches(
        [(e.MessageAdded(ANSWER), "trn_1"), (e.ToolLog("msg_x", 0, 0, "x"), ""), (e.ToolLog("msg_1", 0, 0, "a"), "")],
        [_end()],
    )
    assert await _kinds(watches) == [["message_added", "tool_log"], ["turn_ended"]]


async def test_a_compaction_is_told_to_the_turn_that_runs() -> None:
    """While the turn waits for another one, a compaction is that one's."""
    compacting = e.CompactionStarted(3, 900, 1000)
    watches = FakeWatches(
        [(e.MessageAdded(USER), "trn_1"), (compacting, "")],
        [(e.TurnStarted(make_turn()), "trn_1"), (compacting, "")],
        [_end()],
    )
    assert await _kinds(watches) == [["message_added"], ["turn_started", "compaction_started"], ["turn_ended"]]


async def test_the_stream_ends_with_its_session() -> None:
    """When the watch ends without the turn's end, so does the stream."""
    assert await _kinds(FakeWatches([(e.MessageAdded(USER), "trn_1")])) == [["message_added"]]
