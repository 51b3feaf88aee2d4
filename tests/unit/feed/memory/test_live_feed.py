"""Watchers that have more to take go on at a pace, as those that wait for an event."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.loop import settled
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import Event, PartDelta
from turnwire.feed.memory.live_feed import LiveFeed
from turnwire.feed.memory.waking import AT_ONCE, PER_SECOND


async def test_watchers_that_are_behind_do_not_go_on_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else thousands of them would leave the loop no time for anything else."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # which stands still, however long they take
    feed = LiveFeed(ProtoCodec(), 2 * AT_ONCE, timedelta(hours=1))
    watchers = [feed.subscribe("acme", "ses_1") for _ in range(2 * AT_ONCE)]
    feed.publish("acme", Event(session_id="ses_1", kind=PartDelta("msg_1", 0, 0, "word")))
    waits = [asyncio.create_task(watcher.wait()) for watcher in watchers]
    await settled()
    assert sum(wait.done() for wait in waits) == AT_ONCE
    now += AT_ONCE / PER_SECOND
    await settled()
    assert all(wait.done() for wait in waits)
    assert all(watcher.take(2**20).frames for watcher in watchers)
    for watcher in watchers:
        watcher.close()
    assert feed.open_watchers == 0
