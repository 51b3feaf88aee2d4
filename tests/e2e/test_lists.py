"""Lists: what does not fit into an answer, and whose page token is whose."""

from pathlib import Path

import grpc

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, GetMessagesRequest, ListMessagesRequest
from opencode.session.session_pb2 import ListSessionsRequest
from opencode.tool.tool_pb2 import ListPermissionsRequest, ListToolsRequest
from tests.support.clients.conversation import new_session, refused, text
from tests.support.servers.running import Client, connect, running_server

SMALL = "[server]\nmax_list_bytes = 5000\n"


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
        answer = await client.messages.GetMessages(GetMessagesRequest(session_id=session_id))
        assert ([m.message_id for m in answer.messages], answer.truncated) == (sent, False)
        sent += [await append(client, session_id, "x" * 1000) for _ in range(3)]
        answer = await client.messages.GetMessages(GetMessagesRequest(session_id=session_id))
        assert [m.message_id for m in answer.messages] == sent[-len(answer.messages) :]
        assert (0 < len(answer.messages) < len(sent), answer.truncated, answer.next_page_token) == (True, True, "")
        assert answer.ByteSize() <= 5000 + 3
        page = await client.messages.GetMessages(GetMessagesRequest(session_id=session_id, page_size=6))
        assert ([m.message_id for m in page.messages], page.truncated) == (sent, False)
        await append(client, session_id, "x" * 6000)
        error = await refused(client.messages.GetMessages(GetMessagesRequest(session_id=session_id)))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ANSWER_TOO_LARGE")


async def test_sessions_that_do_not_fit_are_those_that_changed_longest_ago(tmp_path: Path) -> None:
    """The answer says so; pages show them."""
    async with (
        running_server(tmp_path, "[server]\nmax_list_bytes = 5000\n") as server,
        connect(server.address) as client,
    ):
        made = [await new_session(client, title="t" * 900) for _ in range(8)]
        answer = await client.sessions.ListSessions(ListSessionsRequest())
        assert [session.id for session in answer.sessions] == made[::-1][: len(answer.sessions)]
        assert (0 < len(answer.sessions) < len(made), answer.truncated) == (True, True)
        page = await client.sessions.ListSessions(ListSessionsRequest(page_size=100))
        assert (len(page.sessions), page.truncated) == (len(made), False)


async def test_a_page_token_belongs_to_the_other_fields(client: Client) -> None:
    """A token of one session is refused in another."""
    first, second = await new_session(client), await new_session(client)
    for session_id in (first, second):
        for words in ("a", "b"):
            await append(client, session_id, words)
    page = await client.messages.ListMessages(ListMessagesRequest(session_id=first, page_size=1))
    assert page.next_page_token
    for wrong in (
        client.messages.ListMessages(
            ListMessagesRequest(session_id=second, page_size=1, page_token=page.next_page_token)
        ),
        client.tools.ListTools(ListToolsRequest(page_token=page.next_page_token)),
        client.permissions.ListPermissions(ListPermissionsRequest(page_token=page.next_page_token)),
    ):
        error = await refused(wrong)
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["page_token"])
