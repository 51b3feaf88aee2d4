"""The habits of the desktop client, which knows the fixed contract alone: what it does must never hurt a session."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import jsonschema
import pytest
from google.protobuf.json_format import MessageToDict

from opencode.event.event_pb2 import GlobalEvent
from opencode.message.message_pb2 import DisplayMessage
from opencode.session.session_pb2 import UpdateSessionRequest
from tests.support.clients.conversation import change_of, messages_of, tool
from tests.support.clients.fixed_client import FixedClient
from tests.support.servers.running import Client, running_server

SCHEMAS = Path(__file__).parents[2] / "docs/schema"
ASKS = '[permissions]\n"look" = "ask"\n'


class Desktop:
    """The client: one subscription, and sessions that it tells apart by their directory."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.calls = FixedClient(channel)
        self.ours = Client(channel)
        """For what the fixed contract cannot set up; the habits use `calls`."""
        self.events: list[Any] = []
        self._arrived = asyncio.Condition()
        """Guards the list for waiters; nothing is awaited while it is held."""

    async def collect(self) -> None:
        """Keeps the events until it is cancelled."""
        async for event in self.calls.SubscribeGlobalEvents():
            async with self._arrived:
                self.events.append(event)
                self._arrived.notify_all()

    async def session(self, directory: Path, **settings: Any) -> str:
        """Returns a new session in that directory, once the subscription shows its events."""
        directory.mkdir(exist_ok=True)
        created = await self.calls.CreateSession(title="desktop")
        await self.calls.UpdateSessionDirectory(created.id, str(directory))
        if settings:
            request: UpdateSessionRequest = change_of(created.id, **settings)
            await self.ours.sessions.UpdateSession(request)
        return str(created.id)

    async def until(self, found: Callable[[Any], bool], count: int = 1) -> list[Any]:
        """Waits for so many events and returns them."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(list(filter(found, self.events))) >= count)
            return list(filter(found, self.events))


@pytest.fixture
async def desktop(tmp_path: Path) -> AsyncIterator[Desktop]:
    """A client whose subscription is live."""
    async with running_server(tmp_path, ASKS) as server, grpc.aio.insecure_channel(server.address) as channel:
        client = Desktop(channel)
        collecting = asyncio.create_task(client.collect())
        probe = await client.calls.CreateSession(title="probe")
        while not client.events:  # the fixed contract has no other sign that a subscription has begun
            await client.calls.SendMessage(probe.id, "are you there?")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.until(lambda _: True)
        yield client
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)


def _ended(directory: Path) -> Callable[[Any], bool]:
    """Finds the ends of answers in a directory."""
    return lambda event: (
        event.directory == str(directory)
        and event.WhichOneof("event") == "message_updated"
        and event.message_updated.role == "assistant"
        and event.message_updated.HasField("finish")
    )


def _said(directory: Path, words: str) -> Callable[[Any], bool]:
    return lambda event: event.directory == str(directory) and event.message_part_updated.text.text == words


async def test_aborting_twice_200_ms_apart_is_aborting_once(desktop: Desktop, tmp_path: Path) -> None:
    """Nothing more is stored, the text stays, and the next message is answered."""
    here = tmp_path / "work"
    session_id = await desktop.session(here)
    await desktop.calls.SendMessage(session_id, "one two\n/sleep 600\nthree")
    await desktop.until(_said(here, "one two"))

    async def second() -> None:
        await asyncio.sleep(0.2)  # the habit itself, not a wait for something
        await desktop.calls.AbortSession(session_id)

    await asyncio.gather(desktop.calls.AbortSession(session_id), second())
    user, answer, note = (await desktop.calls.GetMessages(session_id)).messages
    assert (list(answer.text_parts), list(note.text_parts)) == (["one two"], ["The turn was aborted."])
    assert user.role == "user"
    [ended] = await desktop.until(_ended(here))
    assert ended.message_updated.finish == "error"

    await desktop.calls.SendMessage(session_id, "and now?")
    answers = await desktop.until(_ended(here), 2)
    assert [event.message_updated.finish for event in answers] == ["error", "stop"]


async def test_aborts_of_an_idle_session_change_nothing(desktop: Desktop, tmp_path: Path) -> None:
    """Two at once, where nothing runs."""
    session_id = await desktop.session(tmp_path / "work")
    await asyncio.gather(*(desktop.calls.AbortSession(session_id) for _ in range(2)))
    assert list((await desktop.calls.GetMessages(session_id)).messages) == []


@pytest.mark.slow
@pytest.mark.parametrize("word", ["approve", "once", "always", "reject"])
async def test_a_permission_answered_after_an_abort_allows_nothing(desktop: Desktop, tmp_path: Path, word: str) -> None:
    """It is refused, the call keeps the end that it had, and the session asks again next time."""
    here = tmp_path / "work"
    session_id = await desktop.session(here, tools=[tool("look")])

    def asked(event: Any) -> bool:
        return event.directory == str(here) and event.WhichOneof("event") == "permission_created"

    await desktop.calls.SendMessage(session_id, "/tool look {}")
    [request] = await desktop.until(asked)
    await desktop.calls.AbortSession(session_id)
    before = await messages_of(desktop.ours, session_id)
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await desktop.calls.RespondToPermission(session_id, request.permission_created.permission.id, word)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert await messages_of(desktop.ours, session_id) == before
    called = (await desktop.calls.GetMessages(session_id)).messages[1]
    assert [(call.status, call.error) for call in called.tool_calls] == [
        ("error", "the turn ended before the tool answered")
    ]

    await desktop.calls.SendMessage(session_id, "/tool look {}")
    await desktop.until(asked, 2)


ENDINGS = {
    "hello": "stop",
    "/finish length\nhello": "stop",
    "/finish content_filter\nhello": "stop",
    "/refuse I will not": "stop",
    "/reason hm\nhello": "stop",
    "/tool missing {}\n/step\nhello": "stop",
    "/error refused": "error",
    "/error context_full": "error",
    "hello\n/error failed": "error",
    "one two\n/cut 1": "error",
}


async def test_finish_is_absent_stop_or_error(desktop: Desktop, tmp_path: Path) -> None:
    """However an answer ends: no other word ever comes, and none while it is being written."""
    here = tmp_path / "work"
    session_id = await desktop.session(here)
    for words, finish in ENDINGS.items():
        before = len(list(filter(_ended(here), desktop.events)))
        await desktop.calls.SendMessage(session_id, words)
        steps = 2 if "/step" in words else 1
        answers = await desktop.until(_ended(here), before + steps)
        assert answers[-1].message_updated.finish == finish, words
    updates = [event.message_updated for event in desktop.events if event.WhichOneof("event") == "message_updated"]
    words = {update.finish if update.HasField("finish") else None for update in updates}
    assert words == {None, "stop", "error"}


def _strict(name: str) -> jsonschema.Draft202012Validator:
    """Returns a schema that also refuses fields and enum values that it does not describe."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    schema["anyOf"] = schema.pop("allOf")
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
        for value in definition["properties"].values():
            if "examples" in value:
                value["enum"] = value["examples"]
    return jsonschema.Draft202012Validator(schema)


async def test_live_answers_fit_the_schemas(desktop: Desktop, tmp_path: Path) -> None:
    """Every event and every message, as the desktop client and as a client of today write them as JSON."""
    here = tmp_path / "work"
    session_id = await desktop.session(here)
    info, part = _strict("messageInfo"), _strict("messagePart")
    for words in ENDINGS:
        before = len(list(filter(_ended(here), desktop.events)))
        await desktop.calls.SendMessage(session_id, words)
        await desktop.until(_ended(here), before + (2 if "/step" in words else 1))

    checked = set()
    for event in desktop.events:
        for written in (MessageToDict(event), MessageToDict(GlobalEvent.FromString(event.SerializeToString()))):
            if "messageUpdated" in written:
                info.validate(written["messageUpdated"])
            if "messagePartUpdated" in written:
                part.validate(written["messagePartUpdated"])
            checked |= written.keys()
    assert checked >= {"messageUpdated", "messagePartUpdated"}
    messages = (await desktop.calls.GetMessages(session_id)).messages
    assert {message.role for message in messages} == {"user", "assistant", "system"}
    for message in messages:
        info.validate(MessageToDict(message))
        info.validate(MessageToDict(DisplayMessage.FromString(message.SerializeToString())))


STREAMING = Path(__file__).parents[2] / "docs/reference/streaming.md"


def _line(event: Any) -> str:
    """Returns an event as the page shows it."""
    kind = event.WhichOneof("event")
    if kind == "message_updated":
        finish = f' finish "{event.message_updated.finish}"' if event.message_updated.HasField("finish") else ""
        return f"{kind} {event.message_updated.role}{finish}"
    part = event.message_part_updated
    if part.WhichOneof("part") == "tool":
        return f'{kind} tool {part.tool.state.name} "{part.tool.state.status}"'
    return f'{kind} {part.WhichOneof("part")} "{getattr(part, part.WhichOneof("part")).text}"'


async def test_the_flow_is_the_one_of_the_page(desktop: Desktop, tmp_path: Path) -> None:
    """docs/reference/streaming.md shows every change of its example in order; one may come more than once, growing."""
    page = STREAMING.read_text()
    [message, flow] = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    here = tmp_path / "work"
    session_id = await desktop.session(here)
    await desktop.calls.SendMessage(session_id, message.rstrip("\n"))
    await desktop.until(_ended(here), 2)
    lines = [_line(event) for event in desktop.events if event.directory == str(here)]
    seen = iter(lines)
    assert all(expected in seen for expected in flow.splitlines()), lines
    assert set(lines) >= set(flow.splitlines())
