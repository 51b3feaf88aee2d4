"""Traces: what a collector receives of calls, turns, models and tools."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from opencode.message.message_pb2 import SendMessageRequest, SendMessageResponse
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from tests.support.clients.conversation import answer_to, ask, refused, talk, turn_ended, words_of
from tests.support.clients.tool_calls import LOOK, pending_calls, result
from tests.support.models.scripts import Say, answer
from tests.support.servers.collector import Collector, ReceivedSpan, collector
from tests.support.servers.mcp import mcp_client, stdio
from tests.support.servers.process import server_process
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server

SEND = "opencode.message.MessageService/SendMessage"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "the secret plan"
"""Words of a prompt."""


@pytest.fixture
async def traces() -> AsyncIterator[Collector]:
    """A collector."""
    async with collector() as running:
        yield running


def placed(trace_id: str = TRACE, *, sampled: bool = True) -> Sequence[tuple[str, str]]:
    """Returns the metadata of a caller whose span is in a trace."""
    return (("traceparent", f"00-{trace_id}-{CALLER}-{'01' if sampled else '00'}"),)


async def send(client: Client, request: SendMessageRequest, **options: object) -> SendMessageResponse:
    """Sends a message within the caller's trace and waits until its turn has ended."""
    accepted = await client.messages.SendMessage(request, metadata=placed(**options))  # type: ignore[arg-type]
    await turn_ended(client, accepted)
    return accepted


def below(parent: ReceivedSpan, spans: Sequence[ReceivedSpan]) -> list[str]:
    """Returns the names of a span's children in the order of their arrival."""
    return [span.name for span in spans if span.parent_id == parent.span_id]


@pytest.mark.slow
async def test_one_trace_leads_from_the_caller_to_models_and_tools(traces: Collector, tmp_path: Path) -> None:
    """SendMessage continues the caller's span; below it are the turn, and below that its model calls and tool calls."""
    script = f'{SECRET}\n/tool test.add {{"a": 1, "b": 2}}'
    async with mcp_client(tmp_path, traces.configuration() + stdio(tmp_path)) as client:
        accepted = await send(client, ask(script))
    call, turn = traces.one(SEND), traces.one("invoke_agent")
    assert {span.trace_id for span in (call, turn)} == {TRACE}
    assert (call.parent_id, call.kind, turn.parent_id) == (CALLER, "SERVER", call.span_id)
    assert below(turn, traces.spans) == ["chat echo", "execute_tool test.add", "chat echo"]
    assert call.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": SEND,
        "rpc.response.status_code": "OK",
        "gen_ai.conversation.id": accepted.session_id,
        "turnwire.turn.id": accepted.turn_id,
    }
    chat = traces.named("chat echo")[0]
    assert (chat.kind, chat.failed) == ("CLIENT", False)
    assert (
        chat.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "offline",
            "gen_ai.request.model": "echo",
            "gen_ai.response.model": "echo",
            "gen_ai.conversation.id": accepted.session_id,
        }.items()
    )
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["tool_use"]
    assert chat.attributes["gen_ai.usage.output_tokens"]
    ran = traces.one("execute_tool test.add")
    assert ran.attributes["gen_ai.operation.name"] == "execute_tool"
    assert ran.attributes["gen_ai.tool.type"] == "extension"
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["turnwire.turn.steps"] == 2
    assert turn.resource["service.name"] == "turnwire"


@pytest.mark.slow
@pytest.mark.parametrize("content", [False, True])
async def test_prompts_are_part_of_traces_only_when_switched_on(
    content: bool, traces: Collector, tmp_path: Path
) -> None:
    """Neither prompt nor answer, nor arguments and results of tools of either side."""
    script = f'{SECRET}\n/tool test.add {{"a": 414100, "b": 42}}\n{LOOK}'
    section = traces.configuration(f"content = {str(content).lower()}")
    async with mcp_client(tmp_path, section + stdio(tmp_path)) as client:
        accepted, calls = await pending_calls(client, script, count=1)
        look = next(call for call in calls if call.name == "look")
        await client.tools.SubmitToolResult(result(accepted, look, "seen it all"))
        await turn_ended(client, accepted)
    words = (SECRET, "414100", "the sum is 414142", "seen it all")
    found = {word: {span.name for span in traces.spans if word in span.text} for word in words}
    if not content:
        assert found == {word: set() for word in words}
        return
    assert found[SECRET] == {"chat echo"}
    assert found["414100"] == {"chat echo", "execute_tool test.add"}
    assert found["the sum is 414142"] == {"chat echo", "execute_tool test.add"}
    assert found["seen it all"] == {"chat echo", "execute_tool look"}
    told = json.loads(str(traces.named("chat echo")[-1].attributes["gen_ai.input.messages"]))
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]


async def test_a_queued_turn_belongs_to_its_own_call(traces: Collector, tmp_path: Path) -> None:
    """Not to the call whose turn ran before it in the same session."""
    other = "5" * 32
    async with running_server(tmp_path, traces.configuration()) as server, connect(server.address) as client:
        accepted, [look] = await pending_calls(client, LOOK)
        waiting = await client.messages.SendMessage(ask("next", accepted.session_id), metadata=placed(other))
        await client.tools.SubmitToolResult(result(accepted, look, "seen"))
        await turn_ended(client, waiting)
    [call] = [span for span in traces.named(SEND) if span.trace_id == other]
    [turn] = [span for span in traces.named("invoke_agent") if span.trace_id == other]
    assert (turn.parent_id, len(traces.named("invoke_agent"))) == (call.span_id, 2)
    assert below(turn, traces.spans) == ["chat echo"]


async def test_a_turn_stays_in_its_trace_over_a_restart(traces: Collector, tmp_path: Path) -> None:
    """Both parts of it belong to the call that sent the message."""
    section = traces.configuration()
    async with running_server(tmp_path, section) as server, connect(server.address) as client:
        accepted, [look] = await pending_calls(client, LOOK)
    async with running_server(tmp_path, section) as server, connect(server.address) as client:
        await client.tools.SubmitToolResult(result(accepted, look, "seen"))
        await turn_ended(client, accepted)
    call, [first, second] = traces.one(SEND), traces.named("invoke_agent")
    assert first.parent_id == second.parent_id == call.span_id
    assert first.trace_id == second.trace_id == call.trace_id
    assert [span.attributes.get("turnwire.cancelled") for span in traces.named("execute_tool look")] == [True, None]


async def test_a_failed_call_has_its_code(traces: Collector, tmp_path: Path) -> None:
    """A caller's mistake is no error of the server; a model that fails is one of its call and its turn."""
    async with running_server(tmp_path, traces.configuration()) as server, connect(server.address) as client:
        await refused(client.messages.GetMessage(session_id="ses_1", message_id="msg_1"))
        await talk(client, "/error refused")
    missed = traces.one("opencode.message.MessageService/GetMessage")
    assert (missed.attributes["rpc.response.status_code"], missed.failed) == ("NOT_FOUND", False)
    failed = [traces.one("chat echo"), traces.one("invoke_agent")]
    assert [(span.failed, span.attributes["error.type"]) for span in failed] == [
        (True, "PROVIDER_REQUEST_REFUSED"),
        (True, "PROVIDER_REQUEST_REFUSED"),
    ]


@pytest.mark.parametrize(("ratio", "sampled", "found"), [(0, None, False), (1, False, False), (0, True, True)])
async def test_the_caller_decides_on_its_own_trace(
    ratio: int, sampled: bool | None, found: bool, traces: Collector, tmp_path: Path
) -> None:
    """And `sample_ratio` on those that begin here."""
    section = traces.configuration(f"sample_ratio = {ratio}")
    async with running_server(tmp_path, section) as server, connect(server.address) as client:
        metadata = () if sampled is None else placed(sampled=sampled)
        accepted = await client.messages.SendMessage(ask("hello"), metadata=metadata)
        await turn_ended(client, accepted)
    names = {span.name for span in traces.spans if span.name in (SEND, "invoke_agent", "chat echo")}
    assert names == ({SEND, "invoke_agent", "chat echo"} if found else set())


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["openai_chat", "openai_responses", "anthropic"])
@pytest.mark.parametrize("sends", [False, True])
async def test_a_provider_gets_the_trace_only_when_its_settings_say_so(
    sends: bool, kind: str, traces: Collector, tmp_path: Path
) -> None:
    """It is somebody else's machine."""
    async with ProviderServer() as provider:
        provider.enqueue(answer(kind, Say("hi")))
        table = f'[providers.local]\nkind = "{kind}"\nbase_url = "{provider.base_url}"\n'
        table += f"sends_traceparent = {str(sends).lower()}\n"
        section = traces.configuration()
        async with running_server(tmp_path, section + table) as server, connect(server.address) as client:
            model = ModelSelection(provider=ProviderInfo(id="local"), model_id="any")
            await send(client, ask("hello", model=model))
        [request] = provider.requests
    headers = {name.lower(): value for name, value in request.headers.items()}
    chat = traces.one("chat any")
    expected = f"00-{TRACE}-{chat.span_id}-01" if sends else None
    assert (headers.get("traceparent"), headers.get("tracestate"), headers.get("baggage")) == (expected, None, None)
    assert chat.attributes["gen_ai.provider.name"] == ("anthropic" if kind == "anthropic" else "openai")
    assert chat.attributes["gen_ai.usage.input_tokens"] == 10


@pytest.mark.slow
@pytest.mark.parametrize("sends", [False, True])
async def test_a_tool_gets_the_trace_only_when_its_settings_say_so(
    sends: bool, traces: Collector, tmp_path: Path
) -> None:
    """The call's metadata has the place of the tool's span."""
    table = stdio(tmp_path, "test", f"sends_traceparent = {str(sends).lower()}")
    async with mcp_client(tmp_path, traces.configuration() + table) as client:
        said = words_of(await answer_to(client, await send(client, ask("/tool test.place"))))
    span = traces.one("execute_tool test.place")
    assert (f"00-{TRACE}-{span.span_id}-01" if sends else "none") in said


@pytest.mark.slow
async def test_no_sdk_sends_a_trace_of_its_own(traces: Collector, tmp_path: Path) -> None:
    """Not even where a variable makes the SDK of OpenTelemetry the tracer of the whole process."""
    async with ProviderServer() as provider:
        provider.enqueue(answer("anthropic", Say("hi")))
        table = f'[providers.local]\nkind = "anthropic"\nbase_url = "{provider.base_url}"\n'
        environ = {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
        async with server_process(tmp_path, traces.configuration() + table, environ, forked=False) as process:
            async with connect(process.address) as client:
                await talk(client, "hello", model=ModelSelection(provider=ProviderInfo(id="local"), model_id="any"))
            assert await process.terminate() == 0
        [request] = provider.requests
    assert not {"traceparent", "tracestate"} & {name.lower() for name in request.headers}
    assert traces.one("chat any").parent_id == traces.one("invoke_agent").span_id


async def test_what_is_not_of_the_contract_has_no_span(traces: Collector, tmp_path: Path) -> None:
    """A load balancer checks the health every few seconds. A watch has one until the server ends it."""
    async with running_server(tmp_path, traces.configuration()) as server, connect(server.address) as client:
        await HealthStub(client.channel).Check(HealthCheckRequest())
        unknown = client.channel.unary_unary("/opencode.no.Service/Method")
        with pytest.raises(grpc.aio.AioRpcError):
            await unknown(b"")
        watch = client.events.WatchEvents(metadata=placed())
        await watch.initial_metadata()
        await server.__aexit__(None, None, None)
    [span] = traces.spans
    assert (span.name, span.parent_id, span.failed) == ("opencode.event.EventService/WatchEvents", CALLER, True)
    assert (span.attributes["rpc.response.status_code"], span.attributes["error.type"]) == (
        "UNAVAILABLE",
        "UNAVAILABLE",
    )


@pytest.mark.slow
async def test_lines_of_the_log_name_the_trace(traces: Collector, tmp_path: Path) -> None:
    """That of the call, with its span."""
    async with server_process(tmp_path, traces.configuration()) as process:
        async with connect(process.address) as client:
            accepted = await send(client, ask("hello"))
            await client.turns.GetTurn(session_id=accepted.session_id, turn_id=accepted.turn_id)
        assert await process.terminate() == 0
    lines = [dict(fact.split("=", 1) for fact in line.split() if "=" in fact) for line in process.stderr]
    [line] = [line for line in lines if line.get("method", "").endswith("SendMessage")]
    assert (line["trace_id"], line["span_id"]) == (TRACE, traces.one(SEND).span_id)
    [other] = [line for line in lines if line.get("method", "").endswith("GetTurn")]
    assert len(other["trace_id"]) == 32 and other["trace_id"] != TRACE


@pytest.mark.slow
async def test_a_collector_that_is_down_holds_nobody_up(tmp_path: Path) -> None:
    """Calls and turns go on, so does the stop, and the log says it once."""
    section = '[tracing]\nenabled = true\nendpoint = "http://127.0.0.1:9/v1/traces"\n'
    async with server_process(tmp_path, section) as process:
        async with connect(process.address) as client:
            for _ in range(20):
                await talk(client, "hello")
        assert await process.terminate() == 0
    said = [line for line in process.stderr if "traces_not_sent" in line]
    assert 1 <= len(said) <= 2
    assert not [line for line in process.stderr if "Traceback" in line or "opentelemetry" in line]
