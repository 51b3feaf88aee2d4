"""A conversation of ikigai on a real server: its rows become a session, and its operations are calls."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import AppendMessageRequest, ExplainContextRequest, ListMessagesRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    ForkSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.turn.turn_pb2 import TurnSettings
from tests.support.clients.conversation import messages_of, model, model_name, new_session, talk, text, words_of
from tests.support.fakes.domain_values import NOW, creating, put
from tests.support.fakes.opened_store import opened_store
from tests.support.models.scripts import Say, answer
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.ids import new_id
from turnwire.interop.ikigai import Draft, MadeBy, conversation, drafts_of

SESSION = "ses_ikigai"
MODEL = model("m", "mine")


def _row(kind: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "data_json": json.dumps(data)}


ROWS: tuple[Mapping[str, Any], ...] = (
    {"kind": "system", "content": "be brief"},
    {"kind": "user", "content": "What is there?", "provider_metadata": {"response_id": "r1"}},
    _row(
        "tool_call", tool_call_id="c1", tool_name="bash", tool_args='{"command": "ls"}',
        thinking={"text": "hm", "signature": "c2lnbmVk"}, redacted_thinking={"data": "cmVkYWN0ZWQ="},
    ),
    _row("tool_result", tool_call_id="c1", output="a.py", success=True),
    {"kind": "mark", "content": "before the second call"},
    _row("tool_call", tool_call_id="c2", name="cat", arguments='{"file":"b.py"}'),
    _row("tool", tool_call_id="c2", output="no such file", success=False),
    {"kind": "assistant", "content": "There is a.py.", "provider_metadata": {"model": "m", "tokens": {"out": 7}}},
    {"kind": "user", "content": "Thanks."},
)  # fmt: skip


async def _store(folder: Path, drafts: Iterable[Draft]) -> None:
    """Stores a conversation in the database that a server opens afterwards."""
    messages = conversation(drafts, SESSION, new_id, NOW, MadeBy("mine", "m", "anthropic"))
    async with opened_store(folder) as opened:
        await opened.store.commit(creating(SESSION, NOW, *map(put, messages)))


class World:
    """A server with the conversation, and the provider that made its answers."""

    def __init__(self, client: Client, provider: ProviderServer) -> None:
        """Takes both."""
        self.client = client
        self.provider = provider

    async def explained(self, session_id: str, model_id: str = "m") -> dict[str, Any]:
        """Returns the request that a model would get with the next message."""
        settings = TurnSettings(model=model_name(model_id, "mine"))
        request = ExplainContextRequest(session_id=session_id, settings=settings, parts=[text("and now?")])
        found: dict[str, Any] = json.loads((await self.client.messages.ExplainContext(request)).request_json)
        return found

    async def clone(self, through_message_id: str = "") -> str:
        """Copies the conversation and returns the session of the copy."""
        request = ForkSessionRequest(session_id=SESSION, through_message_id=through_message_id)
        return str((await self.client.sessions.ForkSession(request)).session.id)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """All rows are stored."""
    await _store(tmp_path, drafts_of(ROWS))
    async with ProviderServer(lambda _: answer("anthropic", Say("Yes."))) as provider:
        toml = f"[providers.mine]\nkind = 'anthropic'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            yield World(client, provider)


def _blocks(request: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the blocks of a request to Anthropic, each with its role."""
    return [
        (message["role"], {key: value for key, value in block.items() if key != "cache_control"})
        for message in request["messages"]
        for block in message["content"]
    ]


BLOCKS = [
    ("user", {"type": "text", "text": "What is there?"}),
    ("assistant", {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}),
    ("assistant", {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}),
    ("assistant", {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}),
    ("user", {"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}),
    ("assistant", {"type": "tool_use", "id": "c2", "name": "cat", "input": {"file": "b.py"}}),
    ("user", {"type": "tool_result", "tool_use_id": "c2", "content": "no such file", "is_error": True}),
    ("assistant", {"type": "text", "text": "There is a.py."}),
    ("user", {"type": "text", "text": "Thanks."}),
]
"""What the model gets of the rows: each block with its role, in order, signatures and errors included."""


async def test_rows_are_the_conversation_that_a_model_gets(world: World) -> None:
    """Block by block, in order; the signature goes to the model that made it, and to no other one."""
    assert _blocks(await world.explained(SESSION))[: len(BLOCKS)] == BLOCKS
    others = _blocks(await world.explained(SESSION, "another"))
    sealed = ("thinking", "redacted_thinking")
    assert others[: len(BLOCKS) - 2] == [block for block in BLOCKS if block[1]["type"] not in sealed]


async def test_rows_are_listed(world: World) -> None:
    """Kinds that are no conversation give no message; results are in their calls, metadata with its message."""
    asked, first, second, answered, thanks = await messages_of(world.client, SESSION)
    assert [words_of(message) for message in (asked, answered, thanks)] == [
        "What is there?",
        "There is a.py.",
        "Thanks.",
    ]
    calls = [part.tool_use for message in (first, second) for part in message.parts if part.HasField("tool_use")]
    assert [(call.call_id, call.name, call.input_json, call.status) for call in calls] == [
        ("c1", "bash", '{"command": "ls"}', "success"),
        ("c2", "cat", '{"file":"b.py"}', "error"),
    ]
    assert [(call.output, call.error) for call in calls] == [("a.py", ""), ("", "no such file")]
    assert [json.loads(m.metadata_json or "null") for m in (asked, answered, thanks)] == [
        {"provider_metadata": {"response_id": "r1"}},
        {"provider_metadata": {"model": "m", "tokens": {"out": 7}}},
        None,
    ]


BAD_ROWS = {
    "malformed JSON": ({"kind": "tool_call", "data_json": "{"}, "rows[1].data_json: is not JSON"),
    "missing data_json": ({"kind": "tool_result"}, "rows[1].data_json: is missing"),
    "missing key": (_row("tool_result", tool_call_id="c"), "rows[1].data_json.output: is missing"),
    "id that is a number": (
        _row("tool", tool_call_id=7, output=""),
        "rows[1].data_json.tool_call_id: must be text, not a number",
    ),
    "text message without content": ({"kind": "user"}, "rows[1].content: is missing"),
    "unknown kind": ({"kind": "note", "content": "a"}, "rows[1].kind: 'note' is unknown"),
}


@pytest.mark.parametrize("bad", BAD_ROWS)
async def test_a_bad_row_is_refused_and_nothing_stored(tmp_path: Path, bad: str) -> None:
    """The error names the row and the key; the database has no message of the others."""
    row, error = BAD_ROWS[bad]
    with pytest.raises(InvalidRequest) as refused:
        await _store(tmp_path, drafts_of(({"kind": "user", "content": "good"}, row)))
    assert refused.value.message.startswith(error)
    assert list(tmp_path.iterdir()) == []


async def test_a_cleared_conversation_is_usable(world: World) -> None:
    """The model gets nothing of before, and the next message is the first one."""
    await world.client.sessions.ClearSession(ClearSessionRequest(session_id=SESSION))
    assert await messages_of(world.client, SESSION) == []
    await talk(world.client, "hello", SESSION, model=MODEL)
    assert _blocks(world.provider.requests[-1].body) == [("user", {"type": "text", "text": "hello"})]
    assert [words_of(message) for message in await messages_of(world.client, SESSION)] == ["hello", "Yes."]


def _content(messages: Iterable[SessionMessage]) -> list[tuple[int, str, list[str], str]]:
    """Returns what a copy has in common with its original."""
    return [
        (
            message.type,
            words_of(message),
            [part.tool_use.input_json + part.tool_use.output + part.tool_use.error for part in message.parts],
            message.metadata_json,
        )
        for message in messages
    ]


async def test_a_clone_is_a_deep_copy(world: World) -> None:
    """Signatures and metadata travel; each of the two is edited, and the other is unchanged."""
    before = await messages_of(world.client, SESSION)
    copy = await world.clone()
    cloned = await messages_of(world.client, copy)
    assert _content(cloned) == _content(before)
    assert not {m.message_id for m in cloned} & {m.message_id for m in before}
    assert _blocks(await world.explained(copy)) == _blocks(await world.explained(SESSION))

    await talk(world.client, "only in the copy", copy, model=MODEL)
    revert = RevertSessionRequest(session_id=copy, before_message_id=cloned[1].message_id)
    await world.client.sessions.RevertSession(revert)
    assert await messages_of(world.client, SESSION) == before
    assert _blocks(await world.explained(SESSION))[: len(BLOCKS)] == BLOCKS

    other = await world.clone()
    copied = await messages_of(world.client, other)
    await world.client.sessions.ClearSession(ClearSessionRequest(session_id=SESSION))
    await talk(world.client, "only in the original", SESSION, model=MODEL)
    assert await messages_of(world.client, other) == copied
    assert _blocks(await world.explained(other))[: len(BLOCKS)] == BLOCKS


async def test_a_fork_has_no_later_messages(world: World) -> None:
    """It ends with its message; the parent keeps all, and the model gets the beginning alone."""
    parent = await messages_of(world.client, SESSION)
    fork = await world.clone(parent[1].message_id)
    assert _content(await messages_of(world.client, fork)) == _content(parent[:2])
    assert _blocks(await world.explained(fork))[:5] == BLOCKS[:5]
    assert "no such file" not in json.dumps(await world.explained(fork))
    assert await messages_of(world.client, SESSION) == parent


async def test_a_rewind_goes_to_its_mark_and_back(world: World) -> None:
    """A mark is the id of a message; what was behind it comes back as it was."""
    before = await messages_of(world.client, SESSION)
    sent = await world.explained(SESSION)
    revert = RevertSessionRequest(session_id=SESSION, before_message_id=before[2].message_id)
    await world.client.sessions.RevertSession(revert)
    assert await messages_of(world.client, SESSION) == before[:2]
    assert "no such file" not in json.dumps(await world.explained(SESSION))
    await world.client.sessions.RestoreSession(RestoreSessionRequest(session_id=SESSION))
    assert await messages_of(world.client, SESSION) == before
    assert await world.explained(SESSION) == sent


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


async def test_ten_thousand_rows_keep_their_order(tmp_path: Path) -> None:
    """In the session, and in a copy of it."""
    rows = [{"kind": ("user", "assistant")[number % 2], "content": str(number)} for number in range(10_000)]
    await _store(tmp_path, drafts_of(rows))
    expected = [row["content"] for row in rows]
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert await _all_words(client, SESSION) == expected
        copy = await client.sessions.ForkSession(ForkSessionRequest(session_id=SESSION))
        assert await _all_words(client, copy.session.id) == expected
