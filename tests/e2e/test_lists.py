"""Lists: what does not fit into an answer, and whose page token is whose."""

import asyncio
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, GetMessagesRequest
from opencode.session.session_pb2 import SESSION_STATUS_RUNNING
from tests.support.clients.conversation import ask, new_session, refused, text
from tests.support.clients.fixed_client import FixedClient
from tests.support.servers.running import Client, connect, running_server
from turnwire.config.sections import ServerConfig

GRPC_BYTES = 4 * 2**20
"""Of the largest answer that a gRPC client takes unless its limit is raised."""

WIDE_TITLE = "\N{GRINNING FACE}" * 1024
"""A title of the largest size."""


def connect_fixed(address: str) -> grpc.aio.Channel:
    """Returns a channel with gRPC's own limits."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def append(client: Client, session_id: str, words: str) -> str:
    """Stores a user message and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(words)])
    return str((await client.messages.AppendMessage(request)).message_id)


async def test_a_conversation_that_does_not_fit_shows_its_newest_messages(tmp_path: Path) -> None:
    """Oldest of them first, and says so; pages show all of it. One message that does not fit alone is refused."""
    async with (
        running_server(tmp_path, "[server]\nmax_list_bytes = 5000\n") as server,
        connect(server.address) as client,
    ):
        session_id = await new_session(client)
        sent = [await append(client, session_id, "x" * 1000) for _ in range(3)]
        answer = await client.messages.GetMessages(session_id=session_id)
        assert ([m.message_id for m in answer.messages], answer.truncated) == (sent, False)
        sent += [await append(client, session_id, "x" * 1000) for _ in range(3)]
        answer = await client.messages.GetMessages(session_id=session_id)
        assert [m.message_id for m in answer.messages] == sent[-len(answer.messages) :]
        assert (0 < len(answer.messages) < len(sent), answer.truncated, answer.next_page_token) == (True, True, "")
        assert answer.ByteSize() <= 5000 + 3
        page = await client.messages.GetMessages(session_id=session_id, page_size=6)
        assert ([m.message_id for m in page.messages], page.truncated) == (sent, False)
        await append(client, session_id, "x" * 6000)
        error = await refused(client.messages.GetMessages(session_id=session_id))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE")


async def test_sessions_that_do_not_fit_are_those_that_changed_longest_ago(tmp_path: Path) -> None:
    """The answer says so; pages show them."""
    async with (
        running_server(tmp_path, "[server]\nmax_list_bytes = 5000\n") as server,
        connect(server.address) as client,
    ):
        made = [await new_session(client, title="t" * 900) for _ in range(8)]
        answer = await client.sessions.ListSessions()
        assert [session.id for session in answer.sessions] == made[::-1][: len(answer.sessions)]
        assert (0 < len(answer.sessions) < len(made), answer.truncated) == (True, True)
        page = await client.sessions.ListSessions(page_size=100)
        assert (len(page.sessions), page.truncated) == (len(made), False)


@pytest.mark.slow
async def test_a_client_with_limits_of_grpc_reads_the_newest_of_a_long_conversation(tmp_path: Path) -> None:
    """All of it is 10 MB, of which it gets as many messages as 4 MiB hold; pages have all of it, to the last byte."""
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as client,
        connect_fixed(server.address) as channel,
    ):
        session_id = await new_session(client)
        sent = [await append(client, session_id, "x" * 250_000) for _ in range(40)]
        answer = await FixedClient(channel).GetMessages(session_id)
        assert [one.message_id for one in answer.messages] == sent[-16:]
        whole = await client.messages.GetMessages(session_id=session_id)
        assert (whole.truncated, GRPC_BYTES - 300_000 < whole.ByteSize() < GRPC_BYTES) == (True, True)
        found, token = list[str](), ""
        while len(found) < len(sent):
            request = GetMessagesRequest(session_id=session_id, page_size=1000, page_token=token)
            page = await client.messages.GetMessages(request)
            assert page.ByteSize() < GRPC_BYTES
            found += [one.message_id for one in page.messages]
            token = page.next_page_token
        assert (found, token) == (sent, "")


@pytest.mark.slow
async def test_a_conversation_of_just_the_largest_answer_is_whole(tmp_path: Path) -> None:
    """A message more that is one byte too long leaves out the oldest; one too long alone is refused with the limit."""
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as client,
        connect_fixed(server.address) as channel,
    ):
        fixed, most = FixedClient(channel), ServerConfig().max_list_bytes
        full, over = await new_session(client), await new_session(client)
        first = {session_id: await append(client, session_id, "x" * 4_000_000) for session_id in (full, over)}
        beside = {one: (await client.messages.GetMessages(session_id=one)).ByteSize() for one in first}
        probe = await new_session(client)
        await append(client, probe, "y" * 100_000)
        head = (await client.messages.GetMessages(session_id=probe)).ByteSize() - 100_000
        for session_id, more, shown in ((full, 0, 2), (over, 1, 1)):
            await append(client, session_id, "y" * (most - beside[session_id] - head + more))
            assert len((await fixed.GetMessages(session_id)).messages) == shown
        await append(client, full, "z" * GRPC_BYTES)
        error = await refused(client.messages.GetMessages(session_id=full))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE")
        assert (error.metadata["limit"], error.metadata["maxBytes"]) == ("server.max_list_bytes", str(most))
        page = await client.messages.GetMessages(session_id=full, page_size=1, newest_first=True)
        assert len(page.messages[0].text_parts[0]) == GRPC_BYTES


@pytest.mark.slow
async def test_a_client_with_limits_of_grpc_reads_many_sessions(tmp_path: Path) -> None:
    """It gets those that changed last; pages are as small and have all."""
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as client,
        connect_fixed(server.address) as channel,
    ):
        made = list[str]()
        for _ in range(12):
            made += await asyncio.gather(*(new_session(client, title=WIDE_TITLE) for _ in range(50)))
        listed = [one.id for one in (await FixedClient(channel).ListSessions()).sessions]
        assert 500 < len(listed) < len(made)
        assert (await client.sessions.ListSessions()).truncated
        found, token = list[str](), ""
        while not found or token:
            page = await client.sessions.ListSessions(page_size=1000, page_token=token)
            assert page.ByteSize() < GRPC_BYTES
            found += [one.id for one in page.sessions]
            token = page.next_page_token
        assert (set(found), found[: len(listed)]) == (set(made), listed)


@pytest.mark.slow
async def test_a_session_counts_all_that_a_list_shows_of_it(tmp_path: Path) -> None:
    """Long labels, the longest title, a folder, and a running turn count."""
    labels = {f"{number}{'k' * 60}": "v" * 250 for number in range(64)}
    async with (
        running_server(tmp_path, "[server]\nmax_list_bytes = 30000\n") as server,
        connect(server.address) as client,
    ):
        for settings in ({"labels": labels}, {"title": WIDE_TITLE}, {"directory": str(tmp_path)}, {"title": "runs"}):
            for _ in range(20):
                made = await asyncio.gather(*(new_session(client, **settings) for _ in range(10)))
                if settings == {"title": "runs"}:
                    await asyncio.gather(*(client.messages.SendMessage(ask("/sleep 600", one)) for one in made))
                shown = await client.sessions.ListSessions()
                assert shown.ByteSize() <= 30_000 + 3
            assert {one.title == settings.get("title", "") for one in shown.sessions} == {True}
        assert {one.status for one in shown.sessions} == {SESSION_STATUS_RUNNING}
