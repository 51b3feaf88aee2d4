"""Ten thousand messages of one conversation."""

import asyncio

import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, ListMessagesRequest
from tests.support.clients.conversation import new_session, text, words_of
from tests.support.servers.running import Client


async def _all_words(client: Client, session_id: str) -> list[str]:
    """Returns what all messages say, page by page."""
    words, token = list[str](), ""
    while True:
        request = ListMessagesRequest(session_id=session_id, page_size=1000, page_token=token)
        page = await client.messages.ListMessages(request)
        words += map(words_of, page.messages)
        token = page.next_page_token
        if not token:
            return words


@pytest.mark.slow
async def test_ten_thousand_messages_are_added_in_order(client: Client) -> None:
    """By 32 callers at once: the list has the order in which they were stored, and so that of each caller."""
    session_id = await new_session(client)
    stored: dict[int, str] = {}

    async def add(caller: int) -> None:
        for number in range(caller, 10_000, 32):
            request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(str(number))])
            stored[(await client.messages.AppendMessage(request)).sequence] = str(number)

    await asyncio.gather(*map(add, range(32)))
    listed = await _all_words(client, session_id)
    assert listed == [words for _, words in sorted(stored.items())]
    for caller in range(32):
        own = [int(words) for words in listed if int(words) % 32 == caller]
        assert own == list(range(caller, 10_000, 32))
