"""Long lists are encoded a few elements at a time."""

import asyncio
from collections import Counter

from opencode.session import session_pb2 as pb
from tests.support.fakes.loop import begun
from turnwire.api.wire.long import BYTES_AT_ONCE, ELEMENTS_AT_ONCE, framed


async def test_the_bytes_are_those_of_the_whole_list() -> None:
    """An empty list too. Nothing waits for time."""
    rest = pb.SessionList(next_page_token="next")
    for count in (0, 1, ELEMENTS_AT_ONCE * 2 + 1):
        titles = [f"{number}" for number in range(count)]
        encoding = await begun(framed(titles, lambda title: pb.SessionInfo(title=title), rest))
        found = pb.SessionList.FromString(encoding.result())
        assert [session.title for session in found.sessions] == titles
        assert found.next_page_token == "next"


async def test_the_loop_goes_on_between_a_few_elements() -> None:
    """Few small ones, or one that is large."""
    for title, at_most in (("small", ELEMENTS_AT_ONCE), ("x" * BYTES_AT_ONCE, 1)):
        turn, converted = 0, Counter[int]()

        def convert(title: str) -> pb.SessionInfo:
            converted[turn] += 1  # noqa: B023 - used in this round only
            return pb.SessionInfo(title=title)

        encoding = asyncio.create_task(framed([title] * 100, convert, pb.SessionList()))
        while not encoding.done():
            await asyncio.sleep(0)
            turn += 1
        assert max(converted.values()) == at_most
