"""What every adapter of a model API keeps of the `Provider` port, over real HTTP."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from typing import cast

import pytest
import pytest_asyncio

from tests.support.servers.provider import ProviderServer, ScriptedReply
from turnwire.domain import errors as domain
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.domain.limits import Limits
from turnwire.domain.money import Usage
from turnwire.ports.provider import ProviderRequest, StepFinished, StreamItem, TextDelta, ToolCallDelta, UsageReported
from turnwire.providers.http.transport import CHUNK_BYTES
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.request.wire_names import wire_name
from turnwire.providers.settings import ProviderSettings

KEY = "hunter2-hunter2"
KINDS = ("openai_chat", "openai_responses", "anthropic")
REQUEST = ProviderRequest(model_id="m", system="be kind", messages=(), options=GenerationOptions(temperature=0.5))


def events(*payloads: object) -> tuple[bytes, ...]:
    """Returns one event per payload."""
    return tuple(b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads)


TEXT = {
    "openai_chat": events({"choices": [{"delta": {"content": "hi"}}]}),
    "openai_responses": events({"type": "response.output_text.delta", "output_index": 0, "delta": "hi"}),
    "anthropic": events(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    ),
}
END = {
    "openai_chat": (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"),
    "openai_responses": events({"type": "response.completed", "response": {"status": "completed"}}),
    "anthropic": events({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}),
}
PATHS = {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses", "anthropic": "/v1/messages"}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ProviderServer]:
    """A local provider."""
    async with ProviderServer() as running:
        yield running


@pytest_asyncio.fixture
async def providers(server: ProviderServer) -> AsyncIterator[ConfiguredProviders]:
    """One provider of each kind, with a key."""
    configured = ConfiguredProviders(
        {
            kind: ProviderSettings(kind=kind, base_url=server.base_url, api_key_env="KEY", timeout_seconds=60)
            for kind in KINDS
        },
        {"KEY": KEY},
    )
    yield configured
    await configured.aclose()


async def stream(
    providers: ConfiguredProviders, kind: str, request: ProviderRequest = REQUEST
) -> AsyncGenerator[StreamItem, None]:
    """Returns the stream of one answer."""
    provider = await providers.get(kind)
    return cast(AsyncGenerator[StreamItem, None], provider.stream(provider.writer().prepare(request)))


async def read(providers: ConfiguredProviders, kind: str, request: ProviderRequest = REQUEST) -> list[StreamItem]:
    """Reads one answer."""
    return [item async for item in await stream(providers, kind, request)]


async def fail(providers: ConfiguredProviders, kind: str) -> domain.ProviderError:
    """Returns the error of one call."""
    with pytest.raises(domain.ProviderError) as caught:
        await read(providers, kind)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
async def test_one_request(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """A call is one streaming request with the key, and ends with its finish reason."""
    server.enqueue(ScriptedReply(TEXT[kind] + END[kind]))
    items = await read(providers, kind)
    assert [item.text for item in items if isinstance(item, TextDelta)] == ["hi"]
    assert isinstance(items[-1], StepFinished)
    assert items[-1].reason is FinishReason.STOP
    (sent,) = server.requests
    assert sent.path == PATHS[kind]
    assert KEY in sent.headers.get("Authorization", "") + sent.headers.get("X-Api-Key", "")
    assert (sent.body["stream"], sent.body["model"], sent.body["temperature"]) == (True, "m", 0.5)
    assert "be kind" in json.dumps(sent.body)


@pytest.mark.parametrize("kind", ["openai_chat", "openai_responses"])
async def test_the_sdk_does_not_look_at_the_body(
    kind: str, server: ProviderServer, providers: ConfiguredProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It walks over all parameters of a call that it has a method for, and draws a key for each request by chance."""
    import openai._utils._transform as parameters
    from openai import AsyncOpenAI

    def refuse(*_args: object, **_kwargs: object) -> object:
        raise AssertionError("the SDK does what costs as much as sending")

    for module, name in ((parameters, "_async_transform_recursive"), (AsyncOpenAI, "_idempotency_key")):
        monkeypatch.setattr(module, name, refuse)
    server.enqueue(ScriptedReply(TEXT[kind] + END[kind]))
    assert isinstance((await read(providers, kind))[-1], StepFinished)
    assert "Idempotency-Key" not in server.requests[0].headers


@pytest.mark.parametrize("kind", KINDS)
async def test_end_marker_ends_the_answer(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """A server that holds the connection open after the end marker does not hold up the answer."""
    never = asyncio.Event()
    server.enqueue(ScriptedReply((*TEXT[kind], *END[kind], never)))
    assert isinstance((await read(providers, kind))[-1], StepFinished)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [True, False])
async def test_cut(kind: str, cut: bool, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """A body that ends before the end marker, or breaks, is a cut; what came is given first."""
    server.enqueue(ScriptedReply((*TEXT[kind], b"data: {"), cut=cut))
    items = []
    with pytest.raises(domain.ProviderStreamCut):
        async for item in await stream(providers, kind):
            items.append(item)
    assert [item.text for item in items if isinstance(item, TextDelta)] == ["hi"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [True, False])
async def test_trouble_behind_the_end_marker(
    kind: str, cut: bool, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """An answer is whole with its end marker, whatever comes behind it."""
    error = b'data: {"type":"error","error":{"message":"too late"}}\n\n'
    server.enqueue(ScriptedReply((*TEXT[kind], *END[kind], error, b"data: {"), cut=cut))
    assert isinstance((await read(providers, kind))[-1], StepFinished)


@pytest.mark.parametrize(
    ("kind", "reason", "word"),
    [
        ("openai_chat", END["openai_chat"][0], "stop"),
        ("anthropic", END["anthropic"][0], "end_turn"),
        (
            "openai_responses",
            events({"type": "response.failed", "response": {"status": "failed", "error": {"message": "x"}}})[0],
            "failed",
        ),
    ],
)
async def test_reason_before_an_error(
    kind: str, reason: bytes, word: str, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """The provider's word for the end is told even when an error follows."""
    error = b'data: {"type":"error","error":{"message":"x"}}\n\n'
    server.enqueue(ScriptedReply((*TEXT[kind], reason, error)))
    items = []
    with pytest.raises(domain.ProviderStreamFailed):
        async for item in await stream(providers, kind):
            items.append(item)
    assert items[-1] == StepFinished(FinishReason.ERROR, word)


async def test_what_follows_an_error_is_read(server: ProviderServer, providers: ConfiguredProviders) -> None:
    """OpenAI tells an error twice, and usage and status only the second time."""
    response = {"status": "failed", "error": {"message": "second"}, "usage": {"input_tokens": 7}}
    told = events({"type": "error", "error": {"message": "first"}}, {"type": "response.failed", "response": response})
    server.enqueue(ScriptedReply((*told, asyncio.Event())))
    items = []
    with pytest.raises(domain.ProviderStreamFailed, match="first"):
        async for item in await stream(providers, "openai_responses"):
            items.append(item)
    assert items == [UsageReported(Usage(input_tokens=7)), StepFinished(FinishReason.ERROR, "failed")]


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_ends_the_request(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """The provider sees the connection go when the generator is closed."""
    server.enqueue(ScriptedReply((*TEXT[kind], asyncio.Event())))
    answer = await stream(providers, kind)
    await anext(answer)
    await answer.aclose()
    await server.requests[0].disconnected.wait()


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answered", [True, False])
async def test_cancelling_ends_the_request(
    kind: str, answered: bool, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """A cancelled task ends it, while it waits for the answer or in the middle of it."""
    server.enqueue(ScriptedReply((*(TEXT[kind] if answered else ()), asyncio.Event())))
    task = asyncio.create_task(read(providers, kind))
    while not server.requests:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.requests[0].disconnected.wait()


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_sent_before_the_first_item(
    kind: str, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """A stream that nobody reads costs nothing and leaves no warning."""
    answer = await stream(providers, kind)
    await answer.aclose()
    assert server.requests == []


@pytest.mark.parametrize("kind", KINDS)
async def test_adapters_do_not_try_again(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """An overloaded provider is asked once; the core is told when to ask again."""
    server.enqueue(ScriptedReply((b"{}",), 529, {"retry-after-ms": "1500", "content-type": "application/json"}))
    error = await fail(providers, kind)
    assert (type(error), error.retry_after) == (domain.ProviderUnavailable, timedelta(milliseconds=1500))
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_refused_request_is_not_retried(
    kind: str, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """400 is final, and its message does not tell the key."""
    body = json.dumps({"error": {"message": f"bad thing for {KEY}", "type": "invalid_request_error"}}).encode()
    server.enqueue(ScriptedReply((body,), 400, {"content-type": "application/json"}))
    error = await fail(providers, kind)
    assert type(error) is domain.ProviderRefusedRequest
    host = server.base_url.split("/")[2]
    assert error.message == f"the provider {kind} at {host} answered 400: bad thing for [key]"
    assert (error.metadata["providerId"], error.metadata["providerHost"]) == (kind, host)
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_rate_limit_tells_when(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """The provider's own word."""
    headers = {"retry-after": "3600", "content-type": "application/json"}
    server.enqueue(ScriptedReply((b"{}",), 429, headers))
    error = await fail(providers, kind)
    assert (type(error), error.retry_after) == (domain.ProviderRateLimited, timedelta(hours=1))


@pytest.mark.parametrize("kind", KINDS)
async def test_json_error_with_status_200(kind: str, server: ProviderServer, providers: ConfiguredProviders) -> None:
    """Some servers answer an error as if it were none."""
    server.enqueue(ScriptedReply((b'{"error":{"message":"x"}}',), 200, {"content-type": "application/json"}))
    assert type(await fail(providers, kind)) is domain.ProviderStreamFailed


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_listens(kind: str) -> None:
    """A provider that cannot be reached is unavailable."""
    async with ProviderServer() as gone:
        base_url = gone.base_url
    providers = ConfiguredProviders({kind: ProviderSettings(kind=kind, base_url=base_url)}, {})
    assert type(await fail(providers, kind)) is domain.ProviderUnavailable
    await providers.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_silence(kind: str, server: ProviderServer) -> None:
    """A provider that does not begin to answer for longer than the settings allow is a timeout."""
    server.enqueue(ScriptedReply((), wait=asyncio.Event()))
    settings = ProviderSettings(kind=kind, base_url=server.base_url, timeout_seconds=0.2)
    providers = ConfiguredProviders({kind: settings}, {})
    assert type(await fail(providers, kind)) is domain.ProviderTimeout
    await providers.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_flood_leaves_the_loop_to_others(
    kind: str, server: ProviderServer, providers: ConfiguredProviders
) -> None:
    """Bytes that a provider sends at once are read in pieces, and others have their turn after each."""
    begin, delta = (b"", TEXT[kind][0]) if len(TEXT[kind]) == 1 else TEXT[kind]
    for _ in range(2):
        server.enqueue(ScriptedReply((begin + delta * 3000, *END[kind])))
    loop, turn, read_in = asyncio.get_running_loop(), [0], Counter[int]()

    def count() -> None:
        turn[0] += 1
        turns[0] = loop.call_soon(count)

    async def flood() -> None:
        async for item in await stream(providers, kind):
            read_in[turn[0]] += item.text.count("hi") if isinstance(item, TextDelta) else 0

    turns = [loop.call_soon(count)]
    await asyncio.gather(flood(), flood())
    turns[0].cancel()
    assert read_in.total() == 6000
    assert max(read_in.values()) <= 2 * (CHUNK_BYTES // len(delta) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_as_many_calls_at_once_as_configured(kind: str, server: ProviderServer) -> None:
    """One provider can be asked by all turns that may run: the transport's own limit of 100 does not count."""
    settings, all_here = ProviderSettings(kind=kind, base_url=server.base_url), asyncio.Event()
    providers = ConfiguredProviders({kind: settings}, {}, limits=Limits(max_running_turns=256))
    for _ in range(256):
        server.enqueue(ScriptedReply((*TEXT[kind], all_here, *END[kind])))
    calls = [asyncio.create_task(read(providers, kind)) for _ in range(256)]
    while len(server.requests) < 256:
        await asyncio.sleep(0.01)
    all_here.set()
    assert {len(items) > 0 for items in await asyncio.gather(*calls)} == {True}
    await providers.aclose()


async def test_tool_names_come_back(server: ProviderServer, providers: ConfiguredProviders) -> None:
    """A tool that had to be renamed for the API is called by its own name."""
    call = {"index": 0, "id": "c", "function": {"name": wire_name("fs.read"), "arguments": "{}"}}
    server.enqueue(ScriptedReply(events({"choices": [{"delta": {"tool_calls": [call]}}]}) + END["openai_chat"]))
    request = ProviderRequest(model_id="m", system="", messages=(), tools=(ToolDefinition("fs.read", "", ""),))
    items = await read(providers, "openai_chat", request)
    assert [item.name for item in items if isinstance(item, ToolCallDelta)] == ["fs.read"]
