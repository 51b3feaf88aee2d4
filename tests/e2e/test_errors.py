"""Bad input: a status with details, and nothing left behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import MessagePart
from opencode.session.session_pb2 import Budget, SessionSettings, UpdateDirectoryRequest
from opencode.tool.tool_pb2 import PermissionResponse, ToolResultFile
from opencode.turn.turn_pb2 import GenerationOptions
from tests.support.clients.conversation import (
    ask,
    file,
    model,
    model_name,
    new_session,
    refused,
    session_of,
    talk,
    text,
    tool,
)
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect, running_server

Calls = Callable[[Client, str], Any]

LONG = "x" * 1025


def send(*parts: MessagePart, **fields: Any) -> Calls:
    """A SendMessage to the session."""
    return lambda client, session_id: client.messages.SendMessage(session_id=session_id, parts=parts, **fields)


def options(**fields: Any) -> Calls:
    """A SendMessage with these options."""
    return send(text("hello"), options=GenerationOptions(**fields))


def listing(**fields: Any) -> Calls:
    """A ListMessages of the session."""
    return lambda client, session_id: client.messages.ListMessages(session_id=session_id, **fields)


def display(**fields: Any) -> Calls:
    """A GetMessages of the session."""
    return lambda client, session_id: client.messages.GetMessages(session_id=session_id, **fields)


def update(**fields: Any) -> Calls:
    """An UpdateSession of the session."""
    return lambda client, session_id: client.sessions.UpdateSession(
        session_id=session_id, settings=SessionSettings(**fields)
    )


def create(**fields: Any) -> Calls:
    """A CreateSession."""
    return lambda client, _: client.sessions.CreateSession(settings=SessionSettings(**fields))


BAD: list[tuple[str, Calls, str, list[str]]] = [
    ("no parts", send(), "INVALID_REQUEST", ["parts"]),
    ("empty text", send(text("")), "INVALID_REQUEST", ["parts[0].text.text"]),
    ("bad base64", send(file(url="data:a/b;base64,@@")), "INVALID_REQUEST", ["parts[0].file.url"]),
    ("file without content", send(text("a"), file(mime="image/png")), "INVALID_REQUEST", ["parts[1].file.url"]),
    ("unknown model", send(text("a"), model=model("nonsense")), "MODEL_UNKNOWN", ["model.model_id"]),
    ("unknown provider", send(text("a"), model=model("echo", "nobody")), "MODEL_UNKNOWN", ["model"]),
    ("unknown agent", send(text("a"), agent="nobody"), "INVALID_REQUEST", ["agent"]),
    ("temperature", options(temperature=2.1), "INVALID_REQUEST", ["options.temperature"]),
    (
        "several at once",
        send(text(""), metadata_json="x", request_id="x" * 200),
        "INVALID_REQUEST",
        ["parts[0].text.text", "request_id", "metadata_json"],
    ),
    ("page_size of ListMessages", listing(page_size=1001), "INVALID_REQUEST", ["page_size"]),
    ("page_token of ListMessages", listing(page_token="nonsense"), "INVALID_REQUEST", ["page_token"]),
    ("page_size of GetMessages", display(page_size=1001), "INVALID_REQUEST", ["page_size"]),
    ("page_token of GetMessages", display(page_size=1, page_token="!"), "INVALID_REQUEST", ["page_token"]),
    ("page_token without page_size", display(page_token="x"), "INVALID_REQUEST", ["page_token"]),
    (
        "page_token of ListSessions",
        lambda client, _: client.sessions.ListSessions(page_size=1, page_token="x"),
        "INVALID_REQUEST",
        ["page_token"],
    ),
    ("long title", create(title=LONG), "INVALID_REQUEST", ["settings.title"]),
    ("relative directory", create(directory="work"), "INVALID_REQUEST", ["settings.directory"]),
    ("model of a new session", create(model=model_name("nonsense")), "MODEL_UNKNOWN", ["settings.model.model_id"]),
    ("provider of a new session", create(model=model_name("echo", "nobody")), "MODEL_UNKNOWN", ["settings.model"]),
    (
        "no provider of a new session",
        create(model=model_name("echo", "")),
        "INVALID_REQUEST",
        ["settings.model.provider_id"],
    ),
    ("agent of a new session", create(agent="nobody"), "INVALID_REQUEST", ["settings.agent"]),
    ("new title", update(title=LONG), "INVALID_REQUEST", ["settings.title"]),
    ("new directory", update(directory="../work"), "INVALID_REQUEST", ["settings.directory"]),
    ("new model", update(model=model_name("nonsense")), "MODEL_UNKNOWN", ["settings.model.model_id"]),
    ("new agent", update(agent="nobody"), "INVALID_REQUEST", ["settings.agent"]),
    (
        "directory alone",
        lambda client, session_id: client.sessions.UpdateSessionDirectory(
            UpdateDirectoryRequest(session_id=session_id, directory="work")
        ),
        "INVALID_REQUEST",
        ["directory"],
    ),
    (
        "type of an appended message",
        lambda client, session_id: client.messages.AppendMessage(session_id=session_id, parts=[text("a")]),
        "INVALID_REQUEST",
        ["type"],
    ),
    (
        "answer to a permission request",
        lambda client, session_id: client.permissions.RespondToPermission(
            PermissionResponse(session_id=session_id, permission_id="p", response="maybe")
        ),
        "INVALID_REQUEST",
        ["response"],
    ),
    (
        "budget of a session",
        lambda client, session_id: client.sessions.UpdateSession(
            session_id=session_id, settings=SessionSettings(budget=Budget(max_tokens=0))
        ),
        "INVALID_REQUEST",
        ["settings.budget.max_tokens"],
    ),
    (
        "files of a tool result",
        lambda client, session_id: client.tools.SubmitToolResult(
            session_id=session_id, tool_call_id="c", output="", files=[ToolResultFile()]
        ),
        "INVALID_REQUEST",
        ["files[0].url"],
    ),
]


@pytest.mark.parametrize(("call", "reason", "fields"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_bad_input_is_refused(client: Client, call: Calls, reason: str, fields: list[str]) -> None:
    """INVALID_ARGUMENT with ErrorInfo and every wrong field; sessions, messages and events are as before."""
    session_id = (await talk(client, "before")).session_id
    before = await client.sessions.ListSessions()
    refusal = await refused(call(client, session_id))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert sorted(refusal.fields) == sorted(fields)
    assert len(refusal.message) < 2000
    assert before.sessions[0].id == session_id
    assert await client.sessions.ListSessions() == before


@pytest.mark.parametrize("session_id", ["", "ses_none"])
@pytest.mark.parametrize(
    "call",
    [
        lambda client, s: client.messages.GetMessages(session_id=s),
        lambda client, s: client.messages.ListMessages(session_id=s),
        lambda client, s: client.messages.AbortSession(session_id=s),
        lambda client, s: client.sessions.GetSession(session_id=s),
        lambda client, s: client.sessions.DeleteSession(session_id=s),
        lambda client, s: client.sessions.UpdateSession(session_id=s, settings=SessionSettings(title="t")),
        lambda client, s: client.sessions.UpdateSessionDirectory(UpdateDirectoryRequest(session_id=s)),
        lambda client, s: client.messages.AppendMessage(session_id=s, type=MESSAGE_TYPE_HOST, parts=[text("a")]),
    ],
    ids=["get", "list", "abort", "session", "delete", "update", "directory", "append"],
)
async def test_session_must_be_named_and_exist(client: Client, call: Calls, session_id: str) -> None:
    """INVALID_ARGUMENT for "", NOT_FOUND for an unknown one."""
    refusal = await refused(call(client, session_id))
    if session_id:
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        assert refusal.details == ["ErrorInfo", "ResourceInfo"]
    else:
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["session_id"])


async def test_send_to_an_unknown_session_is_not_found(own_client: Client) -> None:
    """It is not created under that name."""
    assert (await refused(own_client.messages.SendMessage(ask("a", "ses_none")))).reason == "SESSION_NOT_FOUND"
    assert not (await own_client.sessions.ListSessions()).sessions


async def test_message_over_the_limit_is_refused(tmp_path: Path) -> None:
    """MESSAGE_TOO_LARGE with both sizes; one at the limit goes."""
    async with (
        running_server(tmp_path, "[limits]\nmax_message_bytes = 1000") as server,
        connect(server.address) as client,
    ):
        session_id = await new_session(client)
        refusal = await refused(client.messages.SendMessage(ask("é" * 501, session_id)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE")
        sizes = {"maxBytes": "1000", "actualBytes": "1002", "limit": "limits.max_message_bytes", "limitValue": "1000"}
        assert refusal.metadata == {"field": "parts", **sizes}
        assert (await session_of(client, session_id)).head_sequence == 1
        await talk(client, "é" * 500, session_id)


async def test_request_over_the_transport_limit_is_refused(tmp_path: Path) -> None:
    """GRPC's own limit answers RESOURCE_EXHAUSTED, and the server goes on."""
    toml = "[server]\nmax_message_bytes = 2000\n[limits]\nmax_message_bytes = 1000"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.messages.SendMessage(ask("x" * 3000))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await talk(client, "hello")


async def test_missing_key_is_told_before_anything_is_stored(tmp_path: Path) -> None:
    """FAILED_PRECONDITION, PROVIDER_CREDENTIALS_REJECTED, in every call that names the model."""
    toml = '[providers.mine]\nkind = "openai_chat"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "MY_KEY"'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        mine = model_name("m", "mine")
        session_id = await new_session(client)
        for call in (send(text("a"), model=model("m", "mine")), update(model=mine), create(model=mine)):
            refusal = await refused(call(client, session_id))
            assert (refusal.code, refusal.reason) == (
                grpc.StatusCode.FAILED_PRECONDITION,
                "PROVIDER_CREDENTIALS_REJECTED",
            )
        assert (await session_of(client, session_id)).head_sequence == 1
        assert len((await client.sessions.ListSessions()).sessions) == 1


@pytest.mark.slow
async def test_logs_hold_no_content(tmp_path: Path) -> None:
    """At debug level no prompt, answer, key, file content, tool output or metadata is in any line."""
    secrets = ["Wombat-prompt", "Wombat-key", "V29tYmF0", "Wombat-file", "Wombat-meta", "Wombat-system", "Wombat-tool"]
    toml = (
        '[log]\nlevel = "debug"\n[retries]\nfirst_delay_seconds = 0.001\n[providers.mine]\nkind = "openai_chat"\n'
        'base_url = "http://127.0.0.1:1/v1"\napi_key_env = "MY_KEY"'
    )
    environ = {"MY_KEY": "Wombat-key", "OPENAI_LOG": "debug"}
    # not forked: the SDK looks for OPENAI_LOG when it is imported
    async with server_process(tmp_path, toml, environ, forked=False) as server, connect(server.address) as client:
        (tmp_path / "a.txt").write_text("Wombat-file")
        session_id = await new_session(client, directory=str(tmp_path))
        full = {
            "metadata_json": '{"a":"Wombat-meta"}',
            "system": "Wombat-system",
            "tools": [tool("t", '{"description":"Wombat-tool"}')],
        }
        await talk(client, "Wombat-prompt", session_id, **full)
        await talk(client, "Wombat-prompt\n/error failed", session_id, **full)
        await talk(client, "Wombat-prompt", session_id, model=model("m", "mine"), **full)
        for parts in (
            [text("Wombat-prompt"), file(url="data:text/plain;base64,V29tYmF0"), file(path="a.txt")],
            [text("Wombat-prompt"), file(url="data:text/plain;base64,V29tYmF0!")],
            [text("Wombat-prompt"), file(url="Wombat-file")],
        ):
            call = client.messages.SendMessage(session_id=session_id, parts=parts, **full)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                assert not [s for s in secrets if s in (error.details() or "")]
        await server.terminate()
    lines = "\n".join(server.stderr)
    assert "SendMessage" in lines
    assert [secret for secret in secrets if secret in lines] == []


async def test_long_ids_get_a_short_error(client: Client) -> None:
    """An error fits into the trailer however long the request's words are; its code and details arrive."""
    for session_id in ("x" * 1_024, "é" * 1_024):
        refusal = await refused(client.messages.GetMessages(session_id=session_id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        refusal = await refused(client.messages.GetMessages(session_id=session_id + "x"))
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["session_id"])
    tools = [tool(f"bad name {i}" * 9, "no schema") for i in range(128)]
    refusal = await refused(client.messages.SendMessage(ask("hello", tools=tools)))
    assert (refusal.code, refusal.reason, len(refusal.fields)) == (
        *(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        20,
    )
