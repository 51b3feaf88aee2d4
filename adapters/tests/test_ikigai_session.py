"""A conversation of ikigai on a real server: its rows become a session, and its operations are calls."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.tests.commands import told
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import ExplainContextRequest, ListMessagesRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    ForkSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.turn.turn_pb2 import TurnSettings
from tests.support.clients.conversation import messages_of, model, model_name, talk, text, words_of
from tests.support.models.scripts import Say, answer
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server

AT = "2026-01-01T00:00:00Z"
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


async def _import(folder: Path, rows: Iterable[Mapping[str, Any]], target: str) -> str:
    """Imports a conversation and returns its session."""
    path = folder / "rows.jsonl"
    lines = ({"id": number, "session_id": 1, "created_at": AT, **row} for number, row in enumerate(rows))
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    done = await told(
        "import", "ikigai", "--provider", "mine", "--model", "m", "--api", "anthropic", path, target=target
    )
    return str(done["import"]["sessions"][0]["session_id"])


class World:
    """A server with the conversation, and the provider that made its answers."""

    def __init__(self, client: Client, provider: ProviderServer, session_id: str) -> None:
        """Takes all three."""
        self.client = client
        self.provider = provider
        self.session_id = session_id

    async def explained(self, session_id: str, model_id: str = "m") -> dict[str, Any]:
        """Returns the request that a model would get with the next message."""
        settings = TurnSettings(model=model_name(model_id, "mine"))
        request = ExplainContextRequest(session_id=session_id, settings=settings, parts=[text("and now?")])
        found: dict[str, Any] = json.loads((await self.client.messages.ExplainContext(request)).request_json)
        return found

    async def clone(self, through_message_id: str = "") -> str:
        """Copies the conversation and returns the session of the copy."""
        request = ForkSessionRequest(session_id=self.session_id, through_message_id=through_message_id)
        return str((await self.client.sessions.ForkSession(request)).session.id)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """All rows are stored."""
    async with ProviderServer(lambda _: answer("anthropic", Say("Yes."))) as provider:
        toml = f"[providers.mine]\nkind = 'anthropic'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            yield World(client, provider, await _import(tmp_path, ROWS, server.address))


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
"""Blocks that the model gets of the rows: each one with its role, in order, signatures and errors included."""


async def test_rows_are_the_conversation_that_a_model_gets(world: World) -> None:
    """Block by block, in order; the signature goes to the model that made it, and to no other one."""
    assert _blocks(await world.explained(world.session_id))[: len(BLOCKS)] == BLOCKS
    others = _blocks(await world.explained(world.session_id, "another"))
    sealed = ("thinking", "redacted_thinking")
    assert others[: len(BLOCKS) - 2] == [block for block in BLOCKS if block[1]["type"] not in sealed]


async def test_rows_are_listed(world: World) -> None:
    """Kinds that are no conversation give no message; results are in their calls, metadata with its message."""
    asked, first, second, answered, thanks = await messages_of(world.client, world.session_id)
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


async def test_a_cleared_conversation_is_usable(world: World) -> None:
    """The model gets nothing of before, and the next message is the first one."""
    await world.client.sessions.ClearSession(ClearSessionRequest(session_id=world.session_id))
    assert await messages_of(world.client, world.session_id) == []
    await talk(world.client, "hello", world.session_id, model=MODEL)
    assert _blocks(world.provider.requests[-1].body) == [("user", {"type": "text", "text": "hello"})]
    assert [words_of(message) for message in await messages_of(world.client, world.session_id)] == ["hello", "Yes."]


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
    before = await messages_of(world.client, world.session_id)
    copy = await world.clone()
    cloned = await messages_of(world.client, copy)
    assert _content(cloned) == _content(before)
    assert not {m.message_id for m in cloned} & {m.message_id for m in before}
    assert _blocks(await world.explained(copy)) == _blocks(await world.explained(world.session_id))

    await talk(world.client, "only in the copy", copy, model=MODEL)
    revert = RevertSessionRequest(session_id=copy, before_message_id=cloned[1].message_id)
    await world.client.sessions.RevertSession(revert)
    assert await messages_of(world.client, world.session_id) == before
    assert _blocks(await world.explained(world.session_id))[: len(BLOCKS)] == BLOCKS

    other = await world.clone()
    copied = await messages_of(world.client, other)
    await world.client.sessions.ClearSession(ClearSessionRequest(session_id=world.session_id))
    await talk(world.client, "only in the original", world.session_id, model=MODEL)
    assert await messages_of(world.client, other) == copied
    assert _blocks(await world.explained(other))[: len(BLOCKS)] == BLOCKS


async def test_a_fork_has_no_later_messages(world: World) -> None:
    """It ends with its message; the parent keeps all, and the model gets the beginning alone."""
    parent = await messages_of(world.client, world.session_id)
    fork = await world.clone(parent[1].message_id)
    assert _content(await messages_of(world.client, fork)) == _content(parent[:2])
    assert _blocks(await world.explained(fork))[:5] == BLOCKS[:5]
    assert "no such file" not in json.dumps(await world.explained(fork))
    assert await messages_of(world.client, world.session_id) == parent


async def test_a_rewind_goes_to_its_mark_and_back(world: World) -> None:
    """A mark is the id of a message; what was behind it comes back as it was."""
    before = await messages_of(world.client, world.session_id)
    sent = await world.explained(world.session_id)
    revert = RevertSessionRequest(session_id=world.session_id, before_message_id=before[2].message_id)
    await world.client.sessions.RevertSession(revert)
    assert await messages_of(world.client, world.session_id) == before[:2]
    assert "no such file" not in json.dumps(await world.explained(world.session_id))
    await world.client.sessions.RestoreSession(RestoreSessionRequest(session_id=world.session_id))
    assert await messages_of(world.client, world.session_id) == before
    assert await world.explained(world.session_id) == sent


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


async def test_ten_thousand_rows_keep_their_order(tmp_path: Path) -> None:
    """In the session, and in a copy of it."""
    rows = [{"kind": ("user", "assistant")[number % 2], "content": str(number)} for number in range(10_000)]
    expected = [row["content"] for row in rows]
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await _import(tmp_path, rows, server.address)
        assert await _all_words(client, session_id) == expected
        copy = await client.sessions.ForkSession(ForkSessionRequest(session_id=session_id))
        assert await _all_words(client, copy.session.id) == expected
