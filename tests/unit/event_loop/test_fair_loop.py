"""The loop of the server, that of the standard library and that of uvloop."""

import asyncio
import contextvars
import gc
import importlib.util
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from turnwire.event_loop import fair_loop as module
from turnwire.event_loop import fair_queue
from turnwire.event_loop.fair_loop import ROUND_SECONDS, FairSelectorLoop, fair_loop
from turnwire.event_loop.owner import own

LOOPS = [FairSelectorLoop, *([fair_loop] if importlib.util.find_spec("uvloop") else [])]


class Ticking:
    """A clock on which each callback takes a quarter of a round."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Returns the time, a little later each time."""
        self.now += ROUND_SECONDS / 4
        return self.now


@pytest.fixture(params=LOOPS, ids=lambda factory: factory.__name__)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    """A new loop that counts callbacks instead of time."""
    monkeypatch.setattr(fair_queue, "time", Ticking())
    loop = request.param()
    yield loop
    loop.close()


def context_of(owner: str) -> contextvars.Context:
    """Returns a context of an owner's."""
    context = contextvars.Context()
    context.run(own, owner)
    return context


def test_what_is_ready_of_one_owner_does_not_precede_all_of_another(loop: asyncio.AbstractEventLoop) -> None:
    """A thousand callbacks of one wait for the one of another, not the other way round."""
    order = list[str]()
    for _ in range(1000):
        loop.call_soon(order.append, "a", context=context_of("a"))
    done = loop.create_future()
    loop.call_soon(order.append, "b", context=context_of("b"))
    loop.call_soon(done.set_result, None, context=context_of("b"))
    loop.run_until_complete(done)
    assert "b" in order[:3]
    assert len(order) < 20


def test_tasks_of_an_owner_share_its_time(loop: asyncio.AbstractEventLoop) -> None:
    """Their steps are callbacks."""
    steps = dict.fromkeys("ab", 0)

    async def work(owner: str) -> None:
        own(owner)
        for _ in range(50):
            steps[owner] += 1
            await asyncio.sleep(0)

    async def run() -> None:
        many = [asyncio.create_task(work("a")) for _ in range(100)]
        await asyncio.create_task(work("b"))
        assert steps["a"] < 400
        await asyncio.gather(*many)

    loop.run_until_complete(run())
    assert steps == {"a": 5000, "b": 50}


def test_the_loop_looks_for_what_has_come_between_rounds(loop: asyncio.AbstractEventLoop) -> None:
    """A callback from a thread is called while a thousand callbacks of an owner wait."""
    order = list[str]()
    come = threading.Event()

    def send() -> None:
        loop.call_soon_threadsafe(order.append, "from the thread")
        come.set()

    def begin() -> None:
        threading.Thread(target=send).start()
        come.wait()

    loop.call_soon(begin, context=context_of("a"))
    for _ in range(1000):
        loop.call_soon(order.append, "a", context=context_of("a"))
    loop.call_soon(loop.stop, context=context_of("a"))
    loop.run_forever()
    assert order.index("from the thread") < 20


def test_callbacks_of_an_owner_keep_their_order(loop: asyncio.AbstractEventLoop) -> None:
    """Whatever context they have."""
    order = list[int]()
    for number in range(100):
        loop.call_soon(order.append, number, context=context_of("a"))
    loop.call_soon(loop.stop, context=context_of("a"))
    loop.run_forever()
    assert order == [*range(100)]


def test_a_callback_without_a_context_is_of_who_adds_it(loop: asyncio.AbstractEventLoop) -> None:
    """It waits with the others of its owner, and has a copy of the context."""
    seen = list[str]()
    name = contextvars.ContextVar[str]("name")

    def begin() -> None:
        name.set("first")
        for _ in range(100):
            loop.call_soon(lambda: seen.append(name.get()))
        name.set("second")

    context_of("a").run(begin)
    loop.call_soon(loop.stop, context=context_of("b"))
    loop.run_forever()
    assert 0 < len(seen) < 20
    assert set(seen) == {"first"}


def test_what_nobody_owns_is_called_at_once(loop: asyncio.AbstractEventLoop) -> None:
    """It is what the loop itself does, such as to give a future its result."""
    order = list[str]()
    for _ in range(100):
        loop.call_soon(order.append, "a", context=context_of("a"))
    loop.call_soon(order.append, "nobody")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order.index("nobody") <= 4


def test_a_cancelled_callback_is_not_called(loop: asyncio.AbstractEventLoop) -> None:
    """As with any loop."""
    called = list[str]()
    handle = loop.call_soon(called.append, "cancelled", context=context_of("a"))
    loop.call_soon(called.append, "other", context=context_of("a"))
    loop.call_soon(loop.stop, context=context_of("a"))
    handle.cancel()
    loop.run_forever()
    assert (called, handle.cancelled()) == (["other"], True)


def test_an_error_goes_to_the_handler_of_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    """With what asyncio tells of it."""
    problems = list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, problem: problems.append(problem))
    error = ValueError("no")

    def fail() -> None:
        raise error

    handle = loop.call_soon(fail, context=context_of("a"))
    loop.call_soon(loop.stop, context=context_of("a"))
    loop.run_forever()
    [problem] = problems
    assert problem["exception"] is error
    assert problem["handle"] is handle
    assert "fail" in problem["message"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_ends_the_run(loop: asyncio.AbstractEventLoop, kind: type[BaseException]) -> None:
    """And what waits is called when the loop runs again."""
    called = list[str]()

    def interrupt() -> None:
        raise kind

    loop.call_soon(interrupt, context=context_of("a"))
    loop.call_soon(called.append, "next", context=context_of("a"))
    loop.call_soon(loop.stop, context=context_of("a"))
    with pytest.raises(kind):
        loop.run_forever()
    loop.run_forever()
    assert called == ["next"]


def test_a_stopped_loop_goes_on(loop: asyncio.AbstractEventLoop) -> None:
    """With what waited."""
    called = list[int]()
    for number in range(50):
        loop.call_soon(called.append, number, context=context_of("a"))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert len(called) < 10
    loop.call_soon(loop.stop, context=context_of("a"))
    loop.run_forever()
    assert called == [*range(50)]


@pytest.mark.slow
def test_a_closed_loop_keeps_and_takes_nothing(loop: asyncio.AbstractEventLoop) -> None:
    """Callbacks that waited are forgotten, and more are refused."""

    class Kept:
        def call(self) -> None: ...

    kept = Kept()
    gone = weakref.ref(kept)
    loop.call_soon(kept.call, context=context_of("a"))
    loop.close()
    loop.close()
    del kept
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print, context=context_of("a"))


def test_a_runner_ends_the_tasks_of_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cancelled and awaited."""
    ended = list[str]()

    async def work(owner: str) -> None:
        own(owner)
        try:
            while True:
                await asyncio.sleep(0)
        finally:
            ended.append(owner)

    async def run() -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(work(owner)) for owner in "aab"]
        await asyncio.sleep(0)
        return tasks

    for factory in LOOPS:
        ended.clear()
        with asyncio.Runner(loop_factory=factory) as runner:
            tasks = runner.run(run())
        assert sorted(ended) == ["a", "a", "b"]
        assert all(task.cancelled() for task in tasks)


def test_debugging_is_that_of_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Callbacks tell where they were added, and are called in the order of the loop."""
    loop.set_debug(True)
    order = list[str]()
    for owner in "aab":
        handle = loop.call_soon(order.append, owner, context=context_of(owner))
    assert "created at" in repr(handle)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == ["a", "a", "b"]


def test_a_limit_of_time_ends_a_task_of_an_owner(loop: asyncio.AbstractEventLoop) -> None:
    """Timers are the loop's."""

    async def run() -> None:
        own("a")
        async with asyncio.timeout(0):
            while True:
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        loop.run_until_complete(run())


def test_the_standard_loop_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uvloop is an extra."""
    real: Callable[..., Any] = __import__

    def without(name: str, *args: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr("builtins.__import__", without)
    loop = module.fair_loop()
    assert type(loop) is FairSelectorLoop
    loop.close()


CANCELLED = """
import asyncio, contextlib, socket
from turnwire.event_loop.fair_loop import fair_loop
from turnwire.event_loop.owner import own

async def cancel(task, hops):
    for _ in range(hops):
        await asyncio.sleep(0)
    task.cancel()

async def connect(hops, *, at_once):
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        client.setblocking(False)
        accepted, _ = server.accept()
        accepted.setblocking(False)

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport):
                if not at_once:
                    asyncio.create_task(cancel(connecting, hops))

        connecting = asyncio.create_task(loop.create_connection(Protocol, sock=client))
        if at_once:
            await cancel(connecting, hops)
        with contextlib.suppress(asyncio.CancelledError):
            (await connecting)[0].close()
        client.close()  # unless a transport has it
        assert await asyncio.wait_for(loop.sock_recv(accepted, 1), 5) == b""
        accepted.close()

async def main():
    own("a")
    for hops in range(12):
        await connect(hops, at_once=True)
        await connect(hops, at_once=False)

fair_loop().run_until_complete(main())
"""


async def test_a_cancelled_connection_is_closed() -> None:
    """Whenever it is cancelled. In a process of its own: uvloop's was ended by SIGSEGV."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CANCELLED)
    assert await process.wait() == 0
