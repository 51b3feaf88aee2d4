"""The order of waiting messages in memory."""

import asyncio

import pytest

from tests.support.fakes.waiting import make_place, names
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import MessageNotWaiting
from turnwire.ports.commit import Committed


@pytest.mark.parametrize(
    ("coming", "order"),
    [
        ("q1 q2 q3", "q1 q2 q3"),
        ("q1 i1 q2 i2", "i2 i1 q1 q2"),
        ("q1 s1 q2 s2", "s1 s2 q1 q2"),
        ("q1 s1 i1 s2", "i1 s1 s2 q1"),
    ],
)
def test_a_message_comes_where_its_policy_puts_it(coming: str, order: str) -> None:
    """The newest that interrupts first, those that steer in their order, then the others; the position says it."""
    queue = SessionQueue()
    for name in coming.split():
        place = make_place(name)
        position = queue.add(place)
        assert list(queue)[position - 1] is place
    assert names(queue) == order


def test_those_that_steer_stay_in_order_wherever_they_were_moved() -> None:
    """A new one is behind the last of them."""
    queue = SessionQueue()
    for name in ("q1", "s1", "q2"):
        queue.append(make_place(name))
    queue.add(make_place("s2"))
    assert names(queue) == "q1 s1 s2 q2"


def test_a_place_can_be_put_back() -> None:
    """Behind the one that was before it, whatever came meanwhile; first when that one does not wait any more."""
    queue = SessionQueue()
    a, b, c, d = (make_place(name) for name in "abcd")
    for place in (a, b, c):
        queue.append(place)
    former = queue.remove(c)
    assert former is b
    queue.append(d)
    queue.put_back(c, former)
    assert names(queue) == "a b c d"
    former = queue.move(a, None)
    assert (former, names(queue)) == (None, "b c d a")
    queue.put_back(a, former)
    assert names(queue) == "a b c d"
    former = queue.move(b, a)
    assert names(queue) == "b a c d"
    assert queue.remove(a) is b
    queue.put_back(b, former)
    assert names(queue) == "b c d"
    assert queue.remove(a) is None


def test_only_messages_that_are_aimed_at_a_turn_join_it() -> None:
    """Those that were aimed at an earlier one wait for their own turns."""
    queue = SessionQueue()
    for place in (make_place("s1"), make_place("i1"), make_place("s2", "trn_0"), make_place("q1"), make_place("s3")):
        queue.append(place)
    assert [place.message.message_id for place in queue.joining("trn_1")] == ["msg_s1", "msg_s3"]
    assert queue.joining("trn_2") == []


async def test_a_message_that_is_not_stored_cannot_be_changed_or_shown() -> None:
    """Nobody was told of it yet, and it may fail."""
    queue = SessionQueue()
    place = make_place("s1")
    place.durable = asyncio.get_running_loop().create_future()
    queue.append(place)
    with pytest.raises(MessageNotWaiting):
        queue.find("msg_s1")
    assert (queue.shown(), queue.joining("trn_1"), len(queue)) == ((), [], 1)
    place.durable.set_result(Committed(0, 1))
    assert queue.find("msg_s1") is place
    assert queue.shown() == (QueueEntry("msg_s1", "trn_s1", BusyPolicy.STEER),)
