"""Limits of calls at once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.support.fakes.identity import some_load
from tests.support.fakes.loop import settled
from turnwire.api.admission import overload
from turnwire.api.rights import BEGINS_WORK, LEAST_ROLE
from turnwire.domain.errors import MemoryShort, TooManyCalls
from turnwire.domain.limits import Limits
from turnwire.domain.networks import network_of_peer


def test_further_calls_are_refused_until_one_ends() -> None:
    """By whatever listener they came."""
    load = some_load(max_calls=2)
    first = load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    with pytest.raises(TooManyCalls) as refused:
        load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    assert refused.value.metadata == {"limit": "limits.max_calls", "limitValue": "2"}
    load.leave(first)
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    assert load.calls == 2


def test_one_address_has_some_of_the_calls() -> None:
    """Whatever its connections are, so that others find some left."""
    load = some_load(max_calls=10, max_calls_per_address=2)
    calls = [load.enter(100, begins_work=False, connection=f"ipv4:192.0.2.1:{port}") for port in range(2)]
    with pytest.raises(TooManyCalls) as refused:
        load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:9")
    assert refused.value.metadata == {"limit": "limits.max_calls_per_address", "limitValue": "2"}
    assert refused.value.retry_after is not None
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.2:9")
    for call in calls:
        load.leave(call)
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:9")
    assert load.calls == 2


async def test_critical_memory_ends_requests_that_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again while it lasts, and nothing when it is over. Few of them go on until it has lasted."""
    load = some_load(max_memory_bytes=1000)

    async def ended() -> bool:
        reading = asyncio.create_task(load.reads.read("a", asyncio.Event().wait))  # type: ignore[arg-type]
        await settled()
        if load.is_memory_critical:
            load.note_memory(0, is_critical=True)
        await settled()
        is_ended = reading.done() and isinstance(reading.exception(), MemoryShort)
        reading.cancel()
        return is_ended

    assert not await ended()
    load.note_memory(0, is_critical=True)
    assert not await ended()
    monkeypatch.setattr(overload, "REFUSE_AFTER_SECONDS", 0.0)
    assert not await ended()  # it has only just begun
    monkeypatch.setattr(overload, "SPARED_SECONDS", 0.0)
    assert await ended()
    load.note_memory(1, is_critical=False)
    assert not await ended()


async def test_fewer_requests_are_read_at_a_time_where_each_may_be_large() -> None:
    """While memory is critical, an eighth of it has all that are read; health goes on."""
    load = overload.Overload(Limits(max_memory_bytes=2**20), max_message_bytes=2**15)

    async def begun() -> list[int]:
        reading = [
            asyncio.create_task(reads.read("a", asyncio.Event().wait))  # type: ignore[arg-type]
            for reads in [load.reads] * 10 + [load.anonymous_reads] * 10
        ]
        await settled()
        counts = [load.reads.count, load.anonymous_reads.count]
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)
        return counts

    assert await begun() == [4, 2]
    load.note_memory(0, is_critical=True)
    assert await begun() == [4, 2]
    load.note_memory(8 * overload.READ_COPIES * 2**15, is_critical=False)
    assert await begun() == [8, 4]
    load = overload.Overload(Limits(max_memory_bytes=2**20), max_message_bytes=2**20)
    assert await begun() == [2, 1]


def test_only_much_metadata_counts() -> None:
    """Metadata that any call has costs nothing of the limit."""
    load = some_load(max_memory_bytes=5000 * 16)
    for _ in range(100):
        load.enter(500, begins_work=False, connection="ipv4:192.0.2.1:1")
    long = load.enter(4000, begins_work=False, connection="ipv4:192.0.2.1:1")
    with pytest.raises(TooManyCalls) as refused:
        load.enter(4000, begins_work=False, connection="ipv4:192.0.2.1:1")
    assert refused.value.metadata["limit"] == "limits.max_metadata_bytes"
    load.leave(long)
    load.enter(4000, begins_work=False, connection="ipv4:192.0.2.1:1")


async def test_new_work_waits_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the end of incomplete requests has not helped; all else goes on."""
    load = some_load(max_memory_bytes=1000)
    load.note_memory(0, is_critical=True)
    load.enter(100, begins_work=True, connection="ipv4:192.0.2.1:1")
    monkeypatch.setattr(overload, "REFUSE_AFTER_SECONDS", 0.0)
    with pytest.raises(MemoryShort) as refused:
        load.enter(100, begins_work=True, connection="ipv4:192.0.2.1:1")
    assert refused.value.metadata == {"limit": "limits.max_memory_bytes", "limitValue": "1000"}
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    load.note_memory(1, is_critical=False)
    load.enter(100, begins_work=True, connection="ipv4:192.0.2.1:1")


async def test_new_work_is_refused_at_once_when_memory_is_exhausted() -> None:
    """However short memory has been critical, and only while it is exhausted."""
    load = some_load(max_memory_bytes=1000)
    load.note_memory(0, is_critical=True, is_exhausted=True)
    with pytest.raises(MemoryShort):
        load.enter(100, begins_work=True, connection="ipv4:192.0.2.1:1")
    load.enter(100, begins_work=False, connection="ipv4:192.0.2.1:1")
    load.note_memory(0, is_critical=True, is_exhausted=False)
    load.enter(100, begins_work=True, connection="ipv4:192.0.2.1:1")


def test_a_cache_that_fails_keeps_no_other_from_being_dropped() -> None:
    """Its error is logged."""
    load, dropped = some_load(), list[str]()

    def fail() -> None:
        raise KeyError("a cache")

    load.caches += [fail, lambda: dropped.append("other")]
    with capture_logs() as lines:
        load.drop_caches()
    assert (dropped, [line["event"] for line in lines]) == (["other"], ["cache_not_dropped"])


def test_what_begins_work_are_methods() -> None:
    """A name that no method has would refuse nothing."""
    assert set(LEAST_ROLE) >= BEGINS_WORK


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("work", "read", "leave", "critical", "exhausted", "enough")),
        st.sampled_from(("ipv4:192.0.2.1:1", "ipv4:192.0.2.1:2", "ipv4:192.0.2.2:1")),
        st.sampled_from((100, 2000)),
    ),
    min_size=25,
    max_size=40,
)


@given(_STEPS)
def test_calls_are_counted_as_in_a_model(steps: list[tuple[str, str, int]]) -> None:
    """Whatever comes and ends, in any order: each refusal names the first limit that is reached."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, int]]) -> None:
    load = some_load(max_calls=5, max_calls_per_address=3, max_memory_bytes=16 * 6000)
    calls, memory = list[tuple[str, int, overload.InFlight]](), "enough"

    def expected(connection: str, metadata: int, *, begins_work: bool) -> str | None:
        networks = [network for network, _, _ in calls]
        long = [size for _, size, _ in calls if size > overload.SMALL_METADATA_BYTES]
        if begins_work and memory == "exhausted":
            return "limits.max_memory_bytes"
        if len(calls) == 5:
            return "limits.max_calls"
        if networks.count(network_of_peer(connection)) == 3:
            return "limits.max_calls_per_address"
        is_long = metadata > overload.SMALL_METADATA_BYTES
        return "limits.max_metadata_bytes" if is_long and sum(long) + metadata > 6000 else None

    for number, (step, connection, metadata) in enumerate(steps):
        if step in ("work", "read"):
            limit = expected(connection, metadata, begins_work=step == "work")
            try:
                call = load.enter(metadata, begins_work=step == "work", connection=connection)
                calls.append((network_of_peer(connection), metadata, call))
                assert limit is None
            except (MemoryShort, TooManyCalls) as error:
                assert error.metadata["limit"] == limit
        elif step == "leave" and calls:
            load.leave(calls.pop(number % len(calls))[2])
        elif step in ("critical", "exhausted", "enough"):
            memory = step
            load.note_memory(0, is_critical=step != "enough", is_exhausted=step == "exhausted")
        assert load.calls == len(calls)
    for _, _, call in calls:
        load.leave(call)
    assert (load.calls, load._metadata_bytes, load._calls_of) == (0, 0, {})
