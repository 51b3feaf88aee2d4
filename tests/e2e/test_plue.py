"""A Plue client: JSON in, JSON out, on a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import GetMessageRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from tests.support.clients.conversation import (
    ask,
    messages_of,
    new_session,
    refused,
    session_of,
    streamed,
    tool,
)
from tests.support.clients.documented import documented
from tests.support.servers.running import Client, connect, running_server
from turnwire.interop.plue import PlueCode, PlueError, Updates, message_json, messages_json, send_request, shown_files

PLUE = documented("Plue")

PRICED = """
[models."offline/echo"]
input_usd_per_million = "3"
output_usd_per_million = "15"
"""


async def _send(client: Client, session_id: str, **message: Any) -> str:
    return str((await client.messages.AppendMessage(send_request(session_id, json.dumps(message)))).message_id)


async def _updates(client: Client, session_id: str, words: str, *tools: str) -> tuple[list[dict[str, Any]], Any]:
    """Returns the updates of an answer and its outcome; runs the client's tools."""
    call = aiter(streamed(client, ask(words, session_id, tools=list(map(tool, tools)))))
    updates = Updates((await anext(call)).accepted.turn_id)
    told = []
    async for response in call:
        for event in response.events:
            told += [json.loads(update) for update in updates.apply(event)]
            state = event.tool_call_updated.state
            if state.status == "pending" and state.HasField("started_at"):
                await client.tools.SubmitToolResult(
                    SubmitToolResultRequest(session_id=session_id, tool_call_id=state.id, output="done")
                )
    return told, updates.code


async def test_a_message_is_stored_and_no_answer_starts(client: Client) -> None:
    """plue_message_send, list and get: the same message under its id."""
    session_id = await new_session(client)
    assert messages_json(await messages_of(client, session_id)) == "[]"
    message_id = await _send(client, session_id, text="hello")
    [shown] = json.loads(messages_json(await messages_of(client, session_id)))
    assert shown == {
        "message_id": message_id, "session_id": session_id, "role": "user",
        "parts": [{"type": "text", "content": "hello"}],
    }  # fmt: skip
    got = await client.messages.GetMessage(GetMessageRequest(session_id=session_id, message_id=message_id))
    assert json.loads(message_json(got.message)) == shown


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", PlueCode.JSON_PARSE),
        ("", PlueCode.JSON_PARSE),
        ("{}", PlueCode.INVALID_PARAM),
        ('{"text": 7}', PlueCode.INVALID_PARAM),
        ('{"text": "a", "attachments": [{"path": 7}]}', PlueCode.INVALID_PARAM),
    ],
)
async def test_bad_json_stores_nothing(client: Client, text: str, code: PlueCode) -> None:
    """The error has its code, and the session is as it was."""
    session_id = await new_session(client)
    with pytest.raises(PlueError) as found:
        await PLUE.plue_message_send(client.messages, session_id, text)
    assert found.value.code is code
    assert await PLUE.plue_message_list(client.messages, session_id) == "[]"
    assert (await session_of(client, session_id)).head_sequence == 1


async def test_unknown_messages_are_not_found(client: Client) -> None:
    """And so are those of another session: -2 in the metadata."""
    one, other = await new_session(client), await new_session(client)
    message_id = await _send(client, one, text="hello")
    for session_id, asked in ((one, "msg_none"), (other, message_id), ("ses_none", message_id)):
        request = GetMessageRequest(session_id=session_id, message_id=asked)
        refusal = await refused(client.messages.GetMessage(request))
        assert refusal.plue_code == PlueCode.NOT_FOUND


async def test_a_thousand_concurrent_sends_keep_their_order(client: Client) -> None:
    """1,000 ids, all different, and the list is in the order in which they were stored, behind those of before."""
    session_id = await new_session(client)
    before = [await _send(client, session_id, text="before") for _ in range(3)]
    sent = [client.messages.AppendMessage(send_request(session_id, json.dumps({"text": str(n)}))) for n in range(1000)]
    answers = await asyncio.gather(*sent)
    stored = [answer.message_id for answer in sorted(answers, key=lambda answer: answer.sequence)]
    listed = json.loads(await PLUE.plue_message_list(client.messages, session_id))
    assert len({*before, *stored}) == 1003
    assert [message["message_id"] for message in listed] == [*before, *stored]


async def test_a_restart_gives_the_same_bytes(tmp_path: Path) -> None:
    """Of every message of the conversation."""
    async with running_server(tmp_path, PRICED) as server, connect(server.address) as client:
        session_id = await new_session(client)
        await _updates(client, session_id, "/reason hm\nhello\n/tool look {}\n/step\nthere", "look")
        before = messages_json(await messages_of(client, session_id))
    async with running_server(tmp_path, PRICED) as server, connect(server.address) as client:
        assert messages_json(await messages_of(client, session_id)) == before


async def test_attachments_come_from_allowed_folders_within_a_limit(tmp_path: Path) -> None:
    """With path, content and the language of the file name; anything else is refused and nothing stored."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.py").write_text("print()\n")
    (files / "notes").write_text("words")
    (files / "large.txt").write_text("x" * 101)
    (tmp_path / "secret").write_text("secret")
    toml = f'[files]\nroots = ["{files}"]\nmax_bytes = 100\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = await new_session(client)
        for path in (files / "large.txt", tmp_path / "secret", files / "none"):
            request = send_request(session_id, json.dumps({"text": "look", "attachments": [{"path": str(path)}]}))
            refusal = await refused(client.messages.AppendMessage(request))
            assert refusal.plue_code == PlueCode.INVALID_PARAM, path
        attachments = [{"path": str(files / name)} for name in ("a.py", "notes")]
        await _send(client, session_id, text="look", attachments=attachments)
        [message] = await messages_of(client, session_id)
        parts = json.loads(message_json(message, await _contents(client, message)))["parts"]
    assert parts == [
        {"type": "text", "content": "look"},
        {"type": "file", "path": str(files / "a.py"), "content": "print()\n", "language": "python"},
        {"type": "file", "path": str(files / "notes"), "content": "words"},
    ]


async def _contents(client: Client, message: SessionMessage) -> dict[str, bytes]:
    """Returns the bytes of a message's files."""
    found = {}
    for sha256 in shown_files(message):
        request = DownloadFileRequest(session_id=message.session_id, sha256=sha256)
        found[sha256] = b"".join([piece.data async for piece in client.files.DownloadFile(request)])
    return found


async def test_updates_end_with_done_once(tmp_path: Path) -> None:
    """Content joins to the text, each call is told once, usage and cost of all steps add up."""
    async with running_server(tmp_path, PRICED) as server, connect(server.address) as client:
        session_id = await new_session(client)
        told, code = await _updates(client, session_id, "Let me see.\n/tool look {}\n/step\nIt is there.", "look")
        _, called, answered = map(json.loads, map(message_json, await messages_of(client, session_id)))
    assert code is PlueCode.OK
    assert [update["type"] for update in told].count("done") == 1
    done = told[-1]
    assert (done["type"], done["message_id"]) == ("done", answered["message_id"])
    for message in (called, answered):
        for index, part in enumerate(message["parts"]):
            if part["type"] == "text":
                pieces = [update["content"] for update in told if _place(update) == (message["message_id"], index)]
                assert "".join(pieces) == part["content"]
    [use] = [part for part in called["parts"] if part["type"] == "tool_use"]
    [call] = [update for update in told if update["type"] == "tool_use"]
    assert call == {"type": "tool_use", "tool_use_id": use["tool_use_id"], "message_id": called["message_id"]}
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert done["usage"][key] == called["usage"][key] + answered["usage"][key]
    tokens = done["usage"]
    assert done["cost"] == (tokens["input_tokens"] * 3 + tokens["output_tokens"] * 15) / 1e6


def _place(update: dict[str, Any]) -> tuple[str, int]:
    return update["message_id"], update.get("part_index", -1)


async def test_an_unknown_price_gives_usage_and_no_cost(client: Client) -> None:
    """In `done` as in the message."""
    session_id = await new_session(client)
    told, _ = await _updates(client, session_id, "hello")
    assert "usage" in told[-1]
    assert "cost" not in told[-1]
