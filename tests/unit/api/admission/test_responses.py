"""Answers leave the server in their places."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from opencode.file.file_pb2 import DownloadFileResponse
from opencode.message.message_pb2 import GetMessageResponse
from tests.support.fakes.loop import elapse, settled
from turnwire.api.admission import sending
from turnwire.api.admission.flow import Client
from turnwire.api.admission.large_messages import LargeMessages
from turnwire.api.admission.overload import Overload
from turnwire.api.admission.responses import OFFLOAD_BYTES, Answers, StreamAnswers
from turnwire.api.admission.sending import MAX_MADE, MAX_READ, UNREAD_SECONDS
from turnwire.api.rights import MAKES_OBJECTS, READS_CONTENT
from turnwire.core.watches.unmade import Unmade
from turnwire.domain.limits import Limits

SIZE = 96_000

ONE = Client("", "one")


@pytest.fixture(autouse=True)
def _much_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budgets of these tests are small."""
    monkeypatch.setattr(sending, "WAITING_SHARE", 10.0)


@pytest.fixture
def load() -> Overload:
    """Has room for one large answer."""
    return Overload(Limits(max_memory_bytes=SIZE * 32 // 3), 2**24)


@pytest.fixture
def answers(load: Overload) -> Answers:
    """The answers that are tested."""
    return Answers(load, LargeMessages())


async def test_an_answer_is_made_when_it_has_a_place(answers: Answers, load: Overload) -> None:
    """Not before, so that those who wait have no copy."""
    made, sent, may_read = list[int](), list[object](), asyncio.Event()

    async def send(answer: object) -> None:
        sent.append(answer)
        await may_read.wait()

    async def stream(number: int) -> None:
        def make() -> bytes:
            made.append(number)
            return bytes(SIZE)

        await StreamAnswers(answers, ONE, send).send(Unmade(SIZE, make))

    tasks = [asyncio.create_task(stream(number)) for number in range(3)]
    while not sent:
        await asyncio.sleep(0)
    assert (made, load.sending.bytes) == ([0], SIZE)
    may_read.set()
    await asyncio.gather(*tasks)
    assert (made, load.sending.bytes) == ([0, 1, 2], 0)


@pytest.mark.parametrize(
    ("name", "most"), [(min(MAKES_OBJECTS), MAX_MADE), (min(READS_CONTENT - MAKES_OBJECTS), MAX_READ)]
)
async def test_addresses_have_turns_for_answers_that_may_be_large(answers: Answers, name: str, most: int) -> None:
    """Few are made at a time, for nobody knows their size before."""
    begun, ended = list[str](), asyncio.Event()

    async def call(connection: str) -> None:

        async def run() -> bytes:
            begun.append(connection)
            await ended.wait()
            return b""

        await answers.one(name, run, Client("", connection), lambda _: None)

    calls = [asyncio.create_task(call(f"ipv4:10.0.0.1:{port}")) for port in range(20)]
    await settled()
    calls.append(asyncio.create_task(call("ipv4:10.0.0.2:1")))
    await settled()
    assert len(begun) == most
    calls[15].cancel()
    ended.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert begun.index("ipv4:10.0.0.2:1") <= most + 1
    assert len(begun) == len(calls) - 1


async def test_an_answer_that_is_empty_is_not_sent(answers: Answers) -> None:
    """Nothing is left of a batch without an event of its turn."""

    async def send(answer: object) -> None:
        raise AssertionError("nothing should be sent")

    await StreamAnswers(answers, ONE, send).send(Unmade(SIZE, lambda: b""))


@pytest.mark.parametrize(("size", "is_beside"), [(1, False), (OFFLOAD_BYTES, False), (OFFLOAD_BYTES + 1, True)])
async def test_large_answers_are_made_beside_the_loop(answers: Answers, size: int, is_beside: bool) -> None:
    """Methods of both kinds make them so."""
    threads = list[threading.Thread]()

    def make() -> bytes:
        threads.append(threading.current_thread())
        return b"x"

    async def run() -> Unmade:
        return Unmade(size, make)

    async def send(answer: object) -> None:
        assert answer == b"x"

    assert await answers.one("method", run, ONE, lambda done: done()) == b"x"
    await StreamAnswers(answers, ONE, send).send(await run())
    assert [thread is not threading.main_thread() for thread in threads] == [is_beside] * 2


async def test_an_answer_of_one_call_keeps_its_place_until_it_is_sent(answers: Answers, load: Overload) -> None:
    """Small ones have none."""
    sent = list[Callable[[], None]]()

    async def run() -> GetMessageResponse:
        answer = GetMessageResponse()
        answer.message.parts.add().text.text = "x" * SIZE
        return answer

    async def run_small() -> bytes:
        return b"x"

    await answers.one("method", run_small, ONE, sent.append)
    assert load.sending.bytes == 0
    await answers.one("method", run, ONE, sent.append)
    assert load.sending.bytes == SIZE
    [done] = sent
    done()
    assert load.sending.bytes == 0


async def test_who_reads_a_file_slowly_is_not_cut_off(
    answers: Answers, load: Overload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one place for all pieces, and is cut off when it has read none for long and another wants the place."""
    cut_off = list[str]()
    monkeypatch.setattr(load.cut_offs, "cut_off", lambda connection, _: cut_off.append(connection))

    async def send(_: object) -> None:
        return

    reader, other = StreamAnswers(answers, ONE, send), StreamAnswers(answers, Client("", "other"), send)
    await reader.send(DownloadFileResponse(data=b"x", size_bytes=SIZE))
    waiting = asyncio.create_task(other.send(bytes(SIZE)))
    for _ in range(5):
        await elapse(timedelta(seconds=UNREAD_SECONDS - 1))
        await reader.send(DownloadFileResponse(data=b"x"))
    assert cut_off == []
    await elapse(timedelta(seconds=UNREAD_SECONDS + 1))
    assert (cut_off, waiting.done()) == (["one"], False)
    reader.close()
    await waiting
    assert load.sending.bytes == 0
