"""Whose work a task is."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.event_loop.owner import NOBODY, OWNER, for_all, group_of, own, own_if_nobody


async def _in_a_task(owner: str) -> str:
    own(owner)
    await asyncio.sleep(0)
    return OWNER.get()


async def _owner() -> str:
    return OWNER.get()


async def test_a_task_is_its_own_owners_alone() -> None:
    """The one that has begun it stays what it was."""
    assert await asyncio.gather(*(asyncio.create_task(_in_a_task(owner)) for owner in "ab")) == ["a", "b"]
    assert OWNER.get() == NOBODY


async def test_what_a_task_begins_is_its_owners() -> None:
    """So a turn is work of the connection that has asked for it."""

    async def begins() -> str:
        own("a")
        return await asyncio.create_task(_owner())

    assert await asyncio.create_task(begins()) == "a"


async def test_work_of_somebody_stays_theirs() -> None:
    """Only what is nobody's gets another owner."""

    async def owned(first: str) -> str:
        own(first)
        own_if_nobody("b")
        return OWNER.get()

    assert [await asyncio.create_task(owned(first)) for first in ("a", NOBODY)] == ["a", "b"]


async def test_what_others_wait_for_is_nobodys() -> None:
    """It has all else of its context."""

    async def begins() -> str:
        own("a")
        return await asyncio.create_task(_owner(), context=for_all())

    assert await asyncio.create_task(begins()) == NOBODY


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("10.0.0.1", ["ipv4:10.0.0.1:5", "10.0.0.1:6", "ipv6:%5B::ffff:10.0.0.1%5D:7", "::ffff:10.0.0.1:8"]),
        ("::/64", ["ipv6:%5B::1%5D:7", "ipv6:[::1]:7", "::1:8"]),
        ("2001:db8:0:1::/64", ["ipv6:%5B2001:db8:0:1::1%5D:7", "2001:db8:0:1:ffff:ffff:ffff:ffff:8"]),
        ("2001:db8:0:2::/64", ["ipv6:%5B2001:db8:0:2::1%5D:7", "2001:db8:0:2::1:7"]),
        ("fe80::/64", ["ipv6:%5Bfe80::1%252%5D:5", "ipv6:%5Bfe80::2%25eth0%5D:5", "fe80::3%eth0:6"]),
        ("unix", ["unix:", "unix:/its/path:5", "unix-abstract:ipv4:10.0.0.1:5"]),
        ("mcp files", ["mcp files"]),
        ("turns of acme", ["turns of acme"]),
        ("", [""]),
    ],
)
def test_connections_of_a_network_are_a_group(group: str, names: list[str]) -> None:
    """At both listeners: an address of IPv4, or a /64 of IPv6. What is no connection is a group by itself."""
    assert {group_of(name) for name in names} == {group}


@given(st.one_of(st.text(), st.text("ipv46:%5BD[]./1f", max_size=40)))
def test_any_name_has_a_group(name: str) -> None:
    """Names of peers come from gRPC and the system, and those of tenants from their operators."""
    assert isinstance(group_of(name), str)
