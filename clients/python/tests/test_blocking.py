"""The client without asyncio, from one thread and from several, against a server in a process of its own."""

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from opencode.session.session_pb2 import CreateSessionRequest, ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from tests.support.servers.serving import serving
from turnwire_client import BlockingClient, ClientClosedError, NotFoundError, TurnFailedError, UnavailableError


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the default configuration."""
    with serving(tmp_path_factory.mktemp("blocking")) as served:
        yield served


@pytest.fixture
def blocking(address: str) -> Iterator[BlockingClient]:
    """A client of that server."""
    with BlockingClient.connect(address) as client:
        yield client


@pytest.mark.slow
def test_an_answer_comes_in_pieces(blocking: BlockingClient) -> None:
    """And as a whole."""
    answer = blocking.ask("/rate 200\none two three")
    assert "".join(answer) == answer.text == "one two three"
    assert answer.turn is not None
    assert blocking.ask("Hello").result() == "Hello"


def test_a_watch_goes_on_in_a_loop(blocking: BlockingClient) -> None:
    """It can be left at any time."""
    accepted = blocking.send("/rate 100\n/words 10")
    for update in blocking.watch(accepted.session_id, resume_token=accepted.resume_token):
        if update.kind == "turn_ended":
            break
    assert len(update.conversation.messages) == 2
    assert blocking.messages(accepted.session_id)[0].message_id == accepted.message_id


def test_messages_are_appended_and_answered(blocking: BlockingClient) -> None:
    """As by the client that it is made of."""
    session_id = blocking.call(blocking.stub(SessionServiceStub).CreateSession, CreateSessionRequest()).id
    stored = blocking.append(session_id, "Hello")
    started = blocking.start(session_id, stored.message_id)
    for update in blocking.watch(session_id, resume_token=started.resume_token):
        if update.kind == "turn_ended":
            break
    assert [message.turn_id for message in blocking.messages(session_id)] == [started.turn.turn_id] * 2


def test_sessions_are_listed_copied_and_taken_back(blocking: BlockingClient) -> None:
    """As by the client that it is made of; the list can be left at any time."""
    answer = blocking.ask("Hello")
    answer.result()
    assert answer.accepted
    session_id, message_id = answer.accepted.session_id, answer.accepted.message_id
    copy = blocking.fork(session_id)
    assert [session.id for session in blocking.sessions()][:2] == [copy.id, session_id]
    for session in blocking.sessions(ListSessionsRequest(page_size=1)):
        assert session.id == copy.id
        break
    assert blocking.revert(session_id, message_id).hidden_messages == 2
    assert [len(blocking.messages(one)) for one in (session_id, copy.id)] == [0, 2]


def test_errors_are_those_of_the_client(blocking: BlockingClient) -> None:
    """Calls, watches and answers raise them."""
    with pytest.raises(NotFoundError):
        blocking.abort("ses_nobody")
    with pytest.raises(NotFoundError):
        next(blocking.watch("ses_nobody"))
    with pytest.raises(TurnFailedError):
        blocking.ask("/error unavailable").result()
    with pytest.raises(UnavailableError):
        BlockingClient.connect("127.0.0.1:1", connect_seconds=0)


def test_tools_run_in_a_thread(blocking: BlockingClient) -> None:
    """They may use the client themselves."""
    threads = []

    @blocking.tool()
    def count_sessions() -> int:
        """Counts the sessions."""
        threads.append(threading.current_thread())
        return len(blocking.call(blocking.stub(SessionServiceStub).ListSessions, ListSessionsRequest()).sessions)

    assert blocking.ask("/tool count_sessions {}").result().split()[-1].isdigit()
    assert threads[0] is not threading.main_thread()


def test_a_coroutine_cannot_wait_for_its_own_client(blocking: BlockingClient) -> None:
    """It would wait for ever; the model reads why."""

    @blocking.tool()
    async def stuck() -> str:
        """Waits for its own thread."""
        return blocking.ask("Hello").result()

    assert "cannot wait for the client" in blocking.ask("/tool stuck {}").result()


@pytest.mark.slow
def test_several_threads_share_a_client(blocking: BlockingClient) -> None:
    """Each gets its own answers."""
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: blocking.ask(f"number {number}").result(), range(40)))
    assert answers == [f"number {number}" for number in range(40)]


def test_closing_ends_what_waits(address: str) -> None:
    """In other threads; afterwards the thread is gone, and calls say so."""
    client = BlockingClient.connect(address)
    accepted = client.send("/rate 1\n/words 100")
    begun, problems = threading.Event(), []

    def follow() -> None:
        try:
            for _ in client.watch(accepted.session_id):
                begun.set()
        except ClientClosedError as problem:
            problems.append(problem)

    thread = threading.Thread(target=follow)
    thread.start()
    begun.wait()
    client.close()
    client.close()
    thread.join()
    assert len(problems) == 1
    with pytest.raises(ClientClosedError):
        client.send("Hello")
    assert not [one for one in threading.enumerate() if one.name == "turnwire-client"]


@pytest.mark.slow
def test_a_forgotten_client_ends_its_thread(address: str) -> None:
    """When nobody holds it any more."""
    client = BlockingClient.connect(address)
    [thread] = [one for one in threading.enumerate() if one.name == "turnwire-client"]
    del client
    gc.collect()
    thread.join(timeout=200)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_program_ends_without_closing(address: str) -> None:
    """Neither with a client that is open nor with one that is amid an answer; nothing is printed."""
    code = (
        "import sys; from turnwire_client import BlockingClient; "
        "client = BlockingClient.connect(sys.argv[1]); answer = client.ask('/rate 5\\n/words 50'); print(next(answer))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, address], check=False, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_it_works_beside_a_running_event_loop(address: str) -> None:
    """As in a notebook, whose cells run in one."""
    code = """
import asyncio, sys
from turnwire_client import BlockingClient, Client

async def cell():
    with BlockingClient.connect(sys.argv[1]) as client:
        print(client.ask("Hello").result())
    async with Client.connect(sys.argv[1]) as client:
        print(await client.ask("again"))

asyncio.run(cell())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, address], check=False, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\nagain\n", "")
