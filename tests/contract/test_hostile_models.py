"""What a model server sends, however much and in whatever form, is bounded for every adapter, over real HTTP."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.raw import RawServer, read_request, sending
from turnwire.domain import errors as domain
from turnwire.domain.limits import Limits
from turnwire.ports.provider import ProviderRequest, StepFinished, StreamItem, TextDelta
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings

KINDS = ("openai_chat", "openai_responses", "anthropic")
REQUEST = ProviderRequest(model_id="m", system="", messages=())
MIB = 2**20
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def event(payload: object) -> bytes:
    """Returns one event."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


TEXT = {
    "openai_chat": event({"choices": [{"delta": {"content": "hi"}}]}),
    "openai_responses": event({"type": "response.output_text.delta", "output_index": 0, "delta": "hi"}),
    "anthropic": event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
}
END = {
    "openai_chat": event({"choices": [{"delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n",
    "openai_responses": event({"type": "response.completed", "response": {"status": "completed"}}),
    "anthropic": event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    + event({"type": "message_stop"}),
}


@asynccontextmanager
async def configured(
    kind: str, base_url: str, *, timeout_seconds: float = 30, **limits: float
) -> AsyncIterator[ConfiguredProviders]:
    """Makes a provider "mine" of a kind, with limits."""
    settings = ProviderSettings(kind=kind, base_url=base_url, timeout_seconds=timeout_seconds)  # type: ignore[arg-type]
    providers = ConfiguredProviders({"mine": settings}, {}, limits=Limits(**limits))  # type: ignore[arg-type]
    try:
        yield providers
    finally:
        await providers.aclose()


async def ask(
    providers: ConfiguredProviders, request: ProviderRequest = REQUEST
) -> tuple[list[StreamItem], domain.ProviderError | None]:
    """Asks once. Returns what came, and the error that ended it."""
    provider = await providers.get("mine")
    items: list[StreamItem] = []
    try:
        async for item in provider.stream(provider.writer().prepare(request)):
            items.append(item)
    except domain.ProviderError as error:
        return items, error
    return items, None


async def ask_once(kind: str, base_url: str, **settings: float) -> tuple[str, domain.ProviderError | None]:
    """Asks a provider that is made for it. Returns the text that came, and the error."""
    async with configured(kind, base_url, **settings) as providers:
        items, error = await ask(providers)
    return "".join(item.text for item in items if isinstance(item, TextDelta)), error


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_body_that_is_no_stream_is_read_at_its_beginning(kind: str, status: int) -> None:
    """However large it is: its connection is closed and its words are kept."""
    words = b'{"error":{"message":"too much of it","padding":"'
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n".encode()
    async with (
        RawServer(sending(head + b"\r\n", words, forever=b"x" * MIB)) as server,
        configured(kind, server.base_url) as providers,
    ):
        await providers.get("mine")
        tracemalloc.start()
        try:
            _, error = await ask(providers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await server.left.wait()
    kinds = {200: domain.ProviderStreamFailed, 400: domain.ProviderRefusedRequest, 500: domain.ProviderUnavailable}
    assert error is not None and type(error) is kinds[status]
    assert status == 200 or error.metadata["status"] == str(status)
    assert peak < 64 * MIB


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
async def test_a_packed_stream_is_read(kind: str) -> None:
    """Some servers pack what they stream."""
    body = gzip.compress(TEXT[kind] * 100 + END[kind])
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with ProviderServer() as server:
        server.enqueue(ScriptedReply((body[:50], body[50:]), headers=headers))
        assert await ask_once(kind, server.base_url) == ("hi" * 100, None)
        assert server.requests[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_packed_stream_counts_as_what_it_unpacks_to(kind: str) -> None:
    """A stream of 64 MiB in 64 KiB is over the limit."""
    body = gzip.compress(TEXT[kind] + (b":" + b" " * 1000 + b"\n") * (64 * 1024), 9)
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with ProviderServer() as server:
        server.enqueue(ScriptedReply((body,), headers=headers))
        text, error = await ask_once(kind, server.base_url, max_answer_received_bytes=MIB)
    assert (text, type(error)) == ("hi", domain.ProviderAnswerOverLimit)
    assert error is not None
    assert (error.metadata["limit"], error.metadata["limitValue"]) == ("limits.max_answer_received_bytes", str(MIB))


async def test_what_is_no_gzip_fails() -> None:
    """The bytes contradict the header."""
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with ProviderServer() as server:
        server.enqueue(ScriptedReply((TEXT["openai_chat"],), headers=headers))
        assert type((await ask_once("openai_chat", server.base_url))[1]) is domain.ProviderStreamFailed


FLOODS = {
    "comments": b": keep-alive\n\n" * 100,
    "one line": b"x" * 4096,
    "one event": b"data: " + b"x" * 4000 + b"\n",
    "events without content": event({"choices": [{"delta": {}}], "type": "ping"}) * 20,
}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flood", FLOODS)
async def test_an_answer_that_never_ends(kind: str, flood: str) -> None:
    """Ends at its size, whatever it is made of; what came is given first."""
    async with RawServer(sending(STREAM + b"\r\n", TEXT[kind], forever=FLOODS[flood])) as server:
        text, error = await ask_once(kind, server.base_url, max_answer_received_bytes=MIB)
        await server.left.wait()
    assert (text, type(error)) == ("hi", domain.ProviderAnswerOverLimit)
    assert error is not None and error.metadata["limit"] == "limits.max_answer_received_bytes"


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begun", [True, False])
async def test_an_answer_has_its_time(kind: str, begun: bool) -> None:
    """It ends however lively its connection is."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(STREAM + b"\r\n" + TEXT[kind] if begun else b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b":")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with RawServer(trickle) as server:
        text, error = await ask_once(kind, server.base_url, timeout_seconds=60, max_answer_seconds=1)
        await server.left.wait()
    assert (text, type(error)) == ("hi" if begun else "", domain.ProviderAnswerOverLimit)
    assert error is not None and error.metadata["limit"] == "limits.max_answer_seconds"


async def test_a_connection_that_is_silent_serves_the_next_call() -> None:
    """And one that the server closes meanwhile is not used."""
    body = TEXT["openai_chat"] + END["openai_chat"]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await read_request(reader)
            writer.write(STREAM + b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.write_eof()
        await reader.read()

    async with RawServer(talk) as server, configured("openai_chat", server.base_url) as providers:
        for number in range(6):
            assert (await ask(providers))[1] is None
            assert server.connections == 1 + number // 3
            if number == 2:
                await server.left.wait()


@pytest.mark.slow
async def test_a_server_that_does_not_read_is_given_up() -> None:
    """A request that cannot be sent is silence too."""
    wall = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wall.wait()

    request = ProviderRequest(model_id="m", system="x" * (16 * MIB), messages=())
    async with RawServer(deaf) as server, configured("openai_chat", server.base_url, timeout_seconds=0.5) as providers:
        provider = await providers.get("mine")
        with pytest.raises(domain.ProviderTimeout):
            async for _ in provider.stream(provider.writer().prepare(request)):
                pass


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MIB,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
        b"\0\1\2 no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["a header without end", "many headers", "no HTTP", "no chunk"],
)
async def test_a_head_that_is_too_much(head: bytes) -> None:
    """Is a clear failure, and nothing of it is kept."""
    async with RawServer(sending(head, forever=b"y" * 4096)) as server:
        _, error = await ask_once("openai_chat", server.base_url, max_answer_received_bytes=MIB)
        await server.left.wait()
    assert error is not None and error.reason in ("PROVIDER_STREAM_FAILED", "PROVIDER_STREAM_CUT")
    assert "yyyy" not in str(error.metadata) + error.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n\r\n", STREAM + b"content-length: 9999\r\n\r\n"])
async def test_a_length_that_is_missing_or_too_large(kind: str, head: bytes) -> None:
    """The answer is whole with its end marker, whatever was said before."""
    async with RawServer(sending(head, TEXT[kind], END[kind])) as server:
        assert await ask_once(kind, server.base_url) == ("hi", None)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_length_that_is_too_small(kind: str) -> None:
    """Bytes beyond it are no part of the answer."""
    async with RawServer(sending(STREAM + b"content-length: 20\r\n\r\n", TEXT[kind], END[kind])) as server:
        text, error = await ask_once(kind, server.base_url)
    assert (text, type(error)) in (("", domain.ProviderStreamFailed), ("", domain.ProviderStreamCut))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_connection_is_told_as_one(kind: str) -> None:
    """With the provider and its host, in words and as facts."""
    async with RawServer(sending()) as server:
        _, error = await ask_once(kind, server.base_url)
        host = server.base_url.split("/")[2]
    assert type(error) is domain.ProviderUnavailable
    assert error.message == f"the provider mine at {host} closed the connection before it answered"
    assert error.metadata == {"providerId": "mine", "providerHost": host}


@pytest.mark.parametrize(
    ("first", "reason", "words"),
    [
        (b"no TLS at all", domain.ProviderUnavailable, "no encrypted connection"),
        (b"", domain.ProviderTimeout, "the provider mine"),
    ],
    ids=["no TLS", "no handshake"],
)
async def test_a_connection_that_does_not_come_about(
    first: bytes, reason: type[domain.ProviderError], words: str
) -> None:
    """A server that speaks no TLS, and one that never ends its handshake."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await reader.read()

    async with RawServer(talk) as server:
        address = server.base_url.replace("http:", "https:")
        _, error = await ask_once("openai_chat", address, timeout_seconds=0.5)
    assert type(error) is reason
    assert words in error.message


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for other programs, by the usual variables; not for what NO_PROXY names."""
    async with ProviderServer() as server:
        for _ in range(2):
            server.enqueue(ScriptedReply((TEXT["openai_chat"], END["openai_chat"])))
        proxy = server.base_url.removesuffix("/v1")
        monkeypatch.setenv("http_proxy", proxy)
        assert await ask_once("openai_chat", "http://models.invalid/v1") == ("hi", None)
        assert server.requests[0].headers["Host"] == "models.invalid"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await ask_once("openai_chat", server.base_url) == ("hi", None)
        _, error = await ask_once("openai_chat", "http://models.invalid/v1")
    assert type(error) is domain.ProviderUnavailable
    assert "the proxy before the provider mine" in error.message


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stall_is_told_as_a_cut(kind: str) -> None:
    """In the middle of an answer silence and a broken connection mean the same: the answer is not whole."""
    async with ProviderServer() as server:
        server.enqueue(ScriptedReply((TEXT[kind], asyncio.Event())))
        text, error = await ask_once(kind, server.base_url, timeout_seconds=1)
    assert (text, type(error)) == ("hi", domain.ProviderStreamCut)
    assert error is not None and "fell silent" in error.message


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_is_not_followed(kind: str, status: int) -> None:
    """The conversation goes to the configured address alone."""
    async with ProviderServer() as other, ProviderServer() as server:
        location = other.base_url + "/chat/completions"
        server.enqueue(ScriptedReply((), status, {"location": location}))
        _, error = await ask_once(kind, server.base_url)
        assert other.requests == []
        assert type(error) is domain.ProviderRefusedRequest
        assert error.metadata["redirectHost"] == location.split("/")[2]


async def test_a_redirect_within_the_address_is_followed() -> None:
    """Some servers add a slash. The request goes out again as it was; a circle ends."""
    async with ProviderServer() as server:
        server.enqueue(ScriptedReply((), 307, {"location": "/v1/responses"}))
        server.enqueue(ScriptedReply((TEXT["openai_chat"], END["openai_chat"])))
        assert await ask_once("openai_chat", server.base_url) == ("hi", None)
        assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/responses"]
        assert server.requests[0].body == server.requests[1].body
        for n in range(9):
            server.enqueue(ScriptedReply((), 308, {"location": f"/v1/{('responses', 'messages')[n % 2]}"}))
        assert type((await ask_once("openai_chat", server.base_url))[1]) is domain.ProviderRefusedRequest
    assert len(server.requests) <= 2 + 4


async def test_a_long_request_is_sent_once_to_where_it_is_redirected() -> None:
    """Nobody keeps it to send it again: the next attempt goes there at once."""
    long = msgspec.structs.replace(REQUEST, system="long " * 100_000)
    async with ProviderServer() as server, configured("openai_chat", server.base_url) as providers:
        server.enqueue(ScriptedReply((), 307, {"location": "/v1/responses"}))
        _, error = await ask(providers, long)
        assert (type(error), error and error.retry_after) == (domain.ProviderUnavailable, timedelta(0))
        for _ in range(2):
            server.enqueue(ScriptedReply((TEXT["openai_chat"], END["openai_chat"])))
            assert (await ask(providers, long))[1] is None
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]


@pytest.mark.parametrize("status", [404, 503])
async def test_a_redirect_counts_no_more_once_it_leads_nowhere(status: int) -> None:
    """The address of the configuration is asked again, not what stood behind it until the server stops."""
    long = msgspec.structs.replace(REQUEST, system="long " * 100_000)
    async with ProviderServer() as server, configured("openai_chat", server.base_url) as providers:
        server.enqueue(ScriptedReply((), 307, {"location": "/v1/responses"}))
        server.enqueue(ScriptedReply((), status))
        server.enqueue(ScriptedReply((TEXT["openai_chat"], END["openai_chat"])))
        errors = [(await ask(providers, long))[1] for _ in range(3)]
        assert [error is None for error in errors] == [False, False, True]
    assert [request.path[4:] for request in server.requests] == ["chat/completions", "responses", "chat/completions"]


async def test_cookies_are_not_kept() -> None:
    """They would be sent with every later request."""
    async with ProviderServer() as server:
        for _ in range(2):
            headers = {"content-type": "text/event-stream", "set-cookie": "a=b; Path=/"}
            server.enqueue(ScriptedReply((TEXT["openai_chat"], END["openai_chat"]), headers=headers))
        async with configured("openai_chat", server.base_url) as providers:
            for _ in range(2):
                assert (await ask(providers))[1] is None
    assert "Cookie" not in server.requests[1].headers


VALUES = (None, 1, 1.5, True, [], {}, ["x"], {"a": 1})
ODD = {
    "openai_chat": lambda value: (
        {"choices": [{"delta": {"content": "a", "tool_calls": [{"id": value, "function": {"name": value}}]}}]},
        {"choices": [{"delta": {"content": value, "reasoning": value, "refusal": value}}]},
        {"id": value, "model": value, "choices": [{"index": value, "delta": {"content": "b"}, "finish_reason": value}]},
        {"choices": value},
        {"choices": [{"delta": {"reasoning_details": value, "images": value}}]},
        {"error": {"message": value, "code": value}},
    ),
    "openai_responses": lambda value: (
        {"type": "response.output_text.delta", "output_index": value, "content_index": value, "delta": "a"},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": value},
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "function_call", "name": value, "call_id": value, "arguments": value},
        },
        {"type": "response.output_item.done", "output_index": 2, "item": value},
        {"type": value, "item": value},
        {"type": "response.created", "response": {"model": value, "id": value}},
        {"type": "response.completed", "response": {"status": value, "output": value}},
    ),
    "anthropic": lambda value: (
        {"type": "message_start", "message": {"id": value, "model": value, "usage": value}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": value, "text": value}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": value}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": value, "id": value}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": value}},
        {"type": "content_block_start", "index": value, "content_block": value},
        {"type": "message_delta", "delta": {"stop_reason": value}, "usage": {"input_tokens": value}},
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_values_of_other_types(kind: str, value: object) -> None:
    """Are passed over or fail the answer; what comes out is what the port promises."""
    async with ProviderServer() as server:
        for payload in ODD[kind](value):
            server.enqueue(ScriptedReply((TEXT[kind], event(payload), END[kind])))
        async with configured(kind, server.base_url) as providers:
            while len(server.requests) < len(ODD[kind](value)):
                items, error = await ask(providers)
                assert error is None or error.reason in ("PROVIDER_STREAM_FAILED", "PROVIDER_RATE_LIMITED"), error
                for item in items:
                    texts = (getattr(item, name, "") for name in ("text", "name", "call_id", "arguments", "kind"))
                    assert all(isinstance(text, str) or text is None for text in texts)
                assert error is not None or isinstance(items[-1], StepFinished)
