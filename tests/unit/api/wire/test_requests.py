"""Requests become inputs of the core; one answer names every field that is wrong."""

import math

import pytest

from opencode.event.event_pb2 import DELTA_MODE_NONE, WatchEventsRequest
from opencode.event.session_event_pb2 import EVENT_KIND_PERMISSION_ASKED, EVENT_KIND_TURN_ENDED
from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as pb
from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT as ASSISTANT
from opencode.message.content_pb2 import MESSAGE_TYPE_HOST as HOST
from opencode.message.content_pb2 import MESSAGE_TYPE_TOOL_RESULT as TOOL_RESULT
from opencode.message.content_pb2 import MESSAGE_TYPE_USER as USER
from opencode.message.content_pb2 import ToolResultContent
from opencode.message.message_pb2 import MessagePart as Part
from opencode.message.message_pb2 import TextPart
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn import turn_pb2
from opencode.turn.turn_pb2 import GenerationOptions as Options
from opencode.turn.turn_pb2 import ResponseFormat, ToolChoice
from tests.support.fakes.domain_values import violations_of
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import required_ids
from turnwire.api.wire.requests.messages import append_request, explain_request, send_request
from turnwire.api.wire.requests.watches import watch_request
from turnwire.core.intake.requests import ModelReport, NewFile, NewMessage, NewText, NewTurn
from turnwire.core.use_cases.explanation import ExplainRequest
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation import turns
from turnwire.domain.conversation.limits import MAX_METADATA_BYTES
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageType,
    ModelRef,
    ModelRun,
    Reasoning,
    Refusal,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.money import Usage
from turnwire.ports.pages import Page

TEXT = Part(text=TextPart(text="hi"))
SCHEMA = turn_pb2.RESPONSE_FORMAT_KIND_JSON_SCHEMA
SELECTION = ModelSelection(provider=ProviderInfo(id="p"), model_id="m")
MODEL = ModelName(provider_id="p", model_id="m")
REPORTED = ModelRun(provider_id="", model_requested="", is_reported=True)


def _send(**fields: object) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(**{"session_id": "ses_1", "parts": [TEXT], **fields})


def _append(**fields: object) -> pb.AppendMessageRequest:
    defaults = {"session_id": "ses_1", "parts": [TEXT], "type": USER}
    return pb.AppendMessageRequest(**{**defaults, **fields})


def test_a_bare_message_takes_every_default() -> None:
    """No session, no name, no model: the server chooses."""
    message, turn = send_request(pb.SendMessageRequest(parts=[TEXT]))
    assert message == NewMessage(session_id="", parts=(NewText("hi"),), fingerprint=message.fingerprint)
    assert turn == NewTurn()


def test_a_full_message_keeps_every_field() -> None:
    """Parts in order, and all that says how to answer."""
    message, turn = send_request(
        _send(
            parts=[TEXT, Part(file=pb.FilePart(mime="a/b", filename="f", url="data:;base64,", path=""))],
            model=SELECTION,
            agent="review",
            request_id="req",
            busy_policy=turn_pb2.BUSY_POLICY_REJECT,
            tools=[ToolDefinition(name="read", description="reads", input_schema_json='{"type":"object"}')],
            options=Options(
                temperature=0,
                top_p=1,
                max_output_tokens=1,
                stop_sequences=["a", "b"],
                reasoning_effort="high",
                max_steps=2,
                max_turn_tokens=2**53 - 1,
                max_turn_cost_pico_usd=1,
                tool_choice=ToolChoice(tool_name="read"),
                response_format=ResponseFormat(kind=SCHEMA, schema_json='{"type":"object"}', strict=True),
            ),
            system="be brief",
            metadata_json='{"a":1}',
            sender="u",
            sender_name="U",
        )
    )
    assert message == NewMessage(
        session_id="ses_1",
        parts=(NewText("hi"), NewFile(mime="a/b", filename="f", url="data:;base64,")),
        request_id="req",
        fingerprint=message.fingerprint,
        metadata_json='{"a":1}',
        sender="u",
        sender_name="U",
    )
    assert turn == NewTurn(
        model=ModelRef("p", "m"),
        agent="review",
        system="be brief",
        options=turns.GenerationOptions(
            temperature=0,
            top_p=1,
            max_output_tokens=1,
            stop_sequences=("a", "b"),
            reasoning_effort="high",
            max_steps=2,
            max_turn_tokens=2**53 - 1,
            max_turn_cost_pico_usd=1,
            tool_choice=turns.ToolChoice(turns.ToolChoiceMode.REQUIRED, "read"),
            response_format=turns.ResponseFormat(
                turns.ResponseFormatKind.JSON_SCHEMA, '{"type":"object"}', "answer", strict=True
            ),
        ),
        tools=(turns.ToolDefinition("read", "reads", '{"type":"object"}'),),
        when_busy=turns.BusyPolicy.REJECT,
    )


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({"parts": []}, [("parts", "REQUIRED")]),
        ({"parts": [Part()]}, [("parts[0]", "REQUIRED")]),
        ({"parts": [TEXT, Part(text=TextPart(text=" \n"))]}, [("parts[1].text.text", "REQUIRED")]),
        ({"parts": [Part(tool_result=ToolResultContent(call_id="c"))]}, [("parts[0].tool_result", "INVALID")]),
        ({"model": ModelSelection()}, [("model.provider.id", "REQUIRED"), ("model.model_id", "REQUIRED")]),
        ({"request_id": "x" * 129}, [("request_id", "TOO_LONG")]),
        ({"sender": "x" * 1025}, [("sender", "TOO_LONG")]),
        ({"sender_name": "x" * 1025}, [("sender_name", "TOO_LONG")]),
        ({"busy_policy": 99}, [("busy_policy", "INVALID")]),
        ({"metadata_json": "[]"}, [("metadata_json", "BAD_JSON")]),
        ({"metadata_json": "{"}, [("metadata_json", "BAD_JSON")]),
        ({"metadata_json": '{"a":' * 10_000}, [("metadata_json", "BAD_JSON")]),
        ({"metadata_json": '{"a":"' + "é" * (MAX_METADATA_BYTES // 2) + '"}'}, [("metadata_json", "TOO_LONG")]),
        ({"tools": [ToolDefinition(name="")]}, [("tools[0].name", "INVALID")]),
        ({"tools": [ToolDefinition(name="a b")]}, [("tools[0].name", "INVALID")]),
        ({"tools": [ToolDefinition(name="a" * 65)]}, [("tools[0].name", "INVALID")]),
        ({"tools": [ToolDefinition(name="lésen")]}, [("tools[0].name", "INVALID")]),
        ({"tools": [ToolDefinition(name="a\n")]}, [("tools[0].name", "INVALID")]),
        ({"tools": [ToolDefinition(name="a"), ToolDefinition(name="a")]}, [("tools[1].name", "DUPLICATE")]),
        ({"tools": [ToolDefinition(name="a", input_schema_json="true")]}, [("tools[0].input_schema_json", "BAD_JSON")]),
        ({"tools": [ToolDefinition(name=f"t{i}") for i in range(129)]}, [("tools", "TOO_MANY")]),
    ],
)
def test_a_wrong_field_of_a_message_is_named(fields: dict[str, object], violations: list[tuple[str, str]]) -> None:
    """By its path in the request, with a reason for programs."""
    assert violations_of(send_request, _send(**fields)) == violations


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_turn_tokens": 0}, "max_turn_tokens"),
        ({"max_turn_tokens": 2**53}, "max_turn_tokens"),
        ({"max_turn_cost_pico_usd": 0}, "max_turn_cost_pico_usd"),
        ({"max_turn_cost_pico_usd": -1}, "max_turn_cost_pico_usd"),
        ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"reasoning_effort": "utmost"}, "reasoning_effort"),
        ({"tool_choice": ToolChoice(mode=9)}, "tool_choice.mode"),  # type: ignore[arg-type]
        ({"tool_choice": ToolChoice(mode="TOOL_CHOICE_MODE_NONE", tool_name="a")}, "tool_choice.tool_name"),
        ({"response_format": ResponseFormat(kind=9)}, "response_format.kind"),  # type: ignore[arg-type]
        ({"response_format": ResponseFormat(name="a")}, "response_format.name"),
        (
            {"response_format": ResponseFormat(kind=turn_pb2.RESPONSE_FORMAT_KIND_JSON, schema_json="{}")},
            "response_format.schema_json",
        ),
        ({"response_format": ResponseFormat(kind=SCHEMA)}, "response_format.schema_json"),
        ({"response_format": ResponseFormat(kind=SCHEMA, schema_json="[]")}, "response_format.schema_json"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, object], field: str) -> None:
    """Not a number and infinity too."""
    [(found, _)] = violations_of(send_request, _send(options=Options(**options)))
    assert found == f"options.{field}"


def test_all_wrong_fields_come_in_one_answer() -> None:
    """A client mends them at once."""
    request = pb.SendMessageRequest(busy_policy=9, request_id="x" * 200, options=Options(top_p=2))
    fields = [field for field, _ in violations_of(send_request, request)]
    assert fields == ["busy_policy", "parts", "request_id", "options.top_p"]


def test_the_longest_values_allowed_pass() -> None:
    """Limits are inclusive."""
    send_request(
        _send(
            request_id="x" * 128,
            sender="x" * 1024,
            sender_name="x" * 1024,
            tools=[ToolDefinition(name="a" * 60 + f"{i:04}") for i in range(128)],
            options=Options(temperature=2, top_p=1, stop_sequences=["a"] * 4),
        )
    )


@pytest.mark.parametrize(
    ("number", "message_type", "part", "expected"),
    [
        (USER, MessageType.USER, TEXT, NewText("hi")),
        (ASSISTANT, MessageType.ASSISTANT, TEXT, NewText("hi")),
        (content.MESSAGE_TYPE_SYSTEM, MessageType.SYSTEM, TEXT, NewText("hi")),
        (HOST, MessageType.HOST, TEXT, NewText("hi")),
        (
            TOOL_RESULT,
            MessageType.TOOL_RESULT,
            Part(tool_result=ToolResultContent(call_id="c", output="o", is_error=True)),
            ToolResult(call_id="c", output="o", is_error=True),
        ),
    ],
)
def test_messages_of_all_types_can_be_appended(
    number: content.MessageType, message_type: MessageType, part: Part, expected: object
) -> None:
    """Each with its kind of parts."""
    message = append_request(_append(type=number, parts=[part], request_id="req"))
    assert message == NewMessage(
        session_id="ses_1",
        parts=(expected,),
        type=message_type,
        request_id="req",
        fingerprint=message.fingerprint,
        report=ModelReport(model_run=REPORTED) if message_type is MessageType.ASSISTANT else None,
    )


def _called(**fields: object) -> Part:
    return Part(tool_call=pb.AppendedToolCall(**{"name": "look", "call_id": "c1", **fields}))  # type: ignore[arg-type]


ANSWER_FIELDS = ("model_run", "finish_reason", "provider_finish_reason", "usage", "cost_pico_usd")


def _answer(*parts: Part, **fields: object) -> pb.AppendMessageRequest:
    return _append(**{"type": ASSISTANT, "parts": parts or [TEXT], **fields})


def test_an_answer_is_appended_word_for_word() -> None:
    """With white space as its model wrote it, calls with and without results, and what the caller says of it."""
    sent = _answer(
        Part(reasoning=content.ReasoningContent(text="hm")),
        Part(text=TextPart(text="\n\n")),
        Part(refusal=content.RefusalContent(text="no")),
        _called(input_json='{"a":'),
        _called(call_id="c2", result=pb.AppendedToolResult(output="it", metadata_json='{"exit":0}')),
        _called(call_id="", result=pb.AppendedToolResult(output="broken", is_error=True)),
        _called(call_id=""),
        model_run=content.ModelRun(provider_id="p", model_requested="m", model_served="m-1", response_id="r"),
        finish_reason=content.FINISH_REASON_TOOL_USE,
        provider_finish_reason="tool_calls",
        usage=content.TokenUsage(input_tokens=0, output_tokens=7),
        cost_pico_usd=0,
    )
    message = append_request(sent)
    assert message.parts == (
        Reasoning("hm"),
        NewText("\n\n"),
        Refusal("no"),
        ToolUse(name="look", call_id="c1", input_json='{"a":'),
        ToolUse(name="look", call_id="c2", status=ToolStatus.SUCCESS, output="it", metadata_json='{"exit":0}'),
        ToolUse(name="look", status=ToolStatus.ERROR, error="broken"),
        ToolUse(name="look"),
    )
    assert message.report == ModelReport(
        model_run=ModelRun(provider_id="p", model_requested="m", model_served="m-1", response_id="r", is_reported=True),
        finish_reason=FinishReason.TOOL_USE,
        provider_finish_reason="tool_calls",
        usage=Usage(input_tokens=0, output_tokens=7),
        cost_pico_usd=0,
    )


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        (_answer(Part(provider=content.ProviderContent(kind="x"))), [("parts[0].provider", "INVALID")]),
        (_append(type=USER, parts=[Part(provider=content.ProviderContent())]), [("parts[0].provider", "INVALID")]),
        (_answer(Part(text=TextPart())), [("parts[0].text.text", "REQUIRED")]),
        (_answer(Part(reasoning=content.ReasoningContent())), [("parts[0].reasoning.text", "REQUIRED")]),
        (_answer(Part(refusal=content.RefusalContent())), [("parts[0].refusal.text", "REQUIRED")]),
        (_answer(Part(tool_result=ToolResultContent(call_id="c"))), [("parts[0].tool_result", "INVALID")]),
        (_answer(_called(name="")), [("parts[0].tool_call.name", "REQUIRED")]),
        (_answer(_called(call_id="x" * 1025)), [("parts[0].tool_call.call_id", "TOO_LONG")]),
        (_answer(_called(), TEXT, _called()), [("parts[2].tool_call.call_id", "DUPLICATE")]),
        (
            _answer(_called(result=pb.AppendedToolResult(metadata_json="[]"))),
            [("parts[0].tool_call.result.metadata_json", "BAD_JSON")],
        ),
        (_answer(model_run=content.ModelRun(provider_id="x" * 1025)), [("model_run.provider_id", "TOO_LONG")]),
        (_answer(usage=content.TokenUsage(input_tokens=2**53)), [("usage.input_tokens", "OUT_OF_RANGE")]),
        (_answer(cost_pico_usd=-1), [("cost_pico_usd", "OUT_OF_RANGE")]),
        (_answer(finish_reason=content.FINISH_REASON_PAUSED), [("finish_reason", "INVALID")]),
        (_answer(provider_finish_reason="x" * 1025), [("provider_finish_reason", "TOO_LONG")]),
        (
            _append(
                type=USER,
                parts=[TEXT],
                model_run=content.ModelRun(),
                finish_reason=content.FINISH_REASON_STOP,
                provider_finish_reason="stop",
                usage=content.TokenUsage(),
                cost_pico_usd=0,
            ),
            [(field, "INVALID") for field in ANSWER_FIELDS],
        ),
        (_append(type=USER, parts=[_called()]), [("parts[0].tool_call", "INVALID")]),
    ],
)
def test_a_wrong_field_of_an_appended_answer_is_named(
    request_: pb.AppendMessageRequest, violations: list[tuple[str, str]]
) -> None:
    """Content that only its provider understands is refused, and facts of answers where there is none."""
    assert violations_of(append_request, request_) == violations


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({"session_id": ""}, [("session_id", "REQUIRED")]),
        ({"type": content.MESSAGE_TYPE_UNSPECIFIED}, [("type", "REQUIRED")]),
        ({"type": 77}, [("type", "REQUIRED")]),
        ({"type": TOOL_RESULT}, [("parts[0].text", "INVALID")]),
        ({"type": HOST, "parts": [Part(file=pb.FilePart(path="a"))]}, [("parts[0].file", "INVALID")]),
        (
            {"type": TOOL_RESULT, "parts": [Part(tool_result=ToolResultContent(output="o"))]},
            [("parts[0].tool_result.call_id", "REQUIRED")],
        ),
    ],
)
def test_a_wrong_field_of_an_appended_message_is_named(
    fields: dict[str, object], violations: list[tuple[str, str]]
) -> None:
    """Type, session, and parts that do not go with the type."""
    assert violations_of(append_request, _append(**fields)) == violations


def test_fingerprints_tell_contents_apart() -> None:
    """The name of the request does not count; everything else does, the method too. Without a name there is none."""
    assert send_request(_send())[0].fingerprint == ""

    def send(**fields: object) -> str:
        return send_request(_send(**{"request_id": "a", **fields}))[0].fingerprint

    same = {send(), send(request_id="b")}
    others = {
        *(send(session_id="ses_2"), send(system="x"), send(sender="x"), send(agent=""), send(parts=[TEXT, TEXT])),
        append_request(_append(type=USER, request_id="a")).fingerprint,
    }
    assert (len(same), len(others), same & others) == (1, 6, set())


def test_contexts_are_explained_with_and_without_a_message() -> None:
    """Model, agent, prompt, tools and options as when a message is sent."""
    bare = explain_request(pb.ExplainContextRequest(session_id="s"))
    assert bare == ExplainRequest(session_id="s", parts=(), turn=NewTurn())
    tools, options = [ToolDefinition(name="read")], Options(max_steps=2)
    settings = turn_pb2.TurnSettings(model=MODEL, agent="review", system="be brief", tools=tools, options=options)
    full = pb.ExplainContextRequest(session_id="s", settings=settings, parts=[TEXT])
    assert explain_request(full) == ExplainRequest(
        session_id="s",
        parts=(NewText("hi"),),
        turn=NewTurn(
            model=ModelRef("p", "m"),
            agent="review",
            system="be brief",
            options=turns.GenerationOptions(max_steps=2),
            tools=(turns.ToolDefinition("read", "", ""),),
        ),
    )
    settings = turn_pb2.TurnSettings(options=Options(top_p=2), tools=[ToolDefinition()])
    wrong = pb.ExplainContextRequest(parts=[Part()], settings=settings)
    assert violations_of(explain_request, wrong) == [
        ("session_id", "REQUIRED"),
        ("parts[0]", "REQUIRED"),
        ("settings.options.top_p", "OUT_OF_RANGE"),
        ("settings.tools[0].name", "INVALID"),
    ]


def test_an_empty_system_prompt_is_not_an_absent_one() -> None:
    """Present and empty means none."""
    assert send_request(_send())[1].system is None
    assert send_request(_send(system=""))[1].system == ""
    explained = pb.ExplainContextRequest(session_id="s", settings=turn_pb2.TurnSettings(system=""))
    assert explain_request(explained).turn.system == ""


def test_watches_take_one_beginning() -> None:
    """A sequence, a token or the first event; absent is not 0; deltas come unless they are refused."""
    assert watch_request(WatchEventsRequest()) == WatchRequest(session_id=None)
    assert watch_request(WatchEventsRequest(session_id="s", after_sequence=0)) == WatchRequest(session_id="s", after=0)
    for session_id in ("s", ""):
        request = WatchEventsRequest(session_id=session_id, from_beginning=True)
        assert watch_request(request) == WatchRequest(session_id=session_id or None, after=0)
    assert watch_request(
        WatchEventsRequest(
            resume_token="t",
            delta_mode=DELTA_MODE_NONE,
            kinds=[EVENT_KIND_TURN_ENDED, EVENT_KIND_PERMISSION_ASKED],
            fail_if_compacted=True,
        )
    ) == WatchRequest(
        session_id=None,
        resume_token="t",
        include_deltas=False,
        kinds=frozenset({"TurnEnded", "PermissionAsked", "MessageReplaced", "ConversationChanged"}),
        fail_if_compacted=True,
    )


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (WatchEventsRequest(after_sequence=0), ["after_sequence"]),
        (WatchEventsRequest(from_beginning=False), ["from_beginning"]),
        (WatchEventsRequest(resume_token=""), ["resume_token"]),
        (WatchEventsRequest(resume_token="x" * 513), ["resume_token"]),
        (WatchEventsRequest(kinds=[EVENT_KIND_TURN_ENDED, 4, 999, 0]), ["kinds[1]", "kinds[2]", "kinds[3]"]),
        (WatchEventsRequest(delta_mode=9), ["delta_mode"]),
    ],
)
def test_wrong_watches_are_named(request_: WatchEventsRequest, fields: list[str]) -> None:
    """A beginning that is none, and kinds that are not durable."""
    assert [field for field, _ in violations_of(watch_request, request_)] == fields


def test_pages_are_whole_unless_a_size_is_given() -> None:
    """A token needs a size; a size has a limit; a method may have a default."""
    assert pages.page(0, "") == Page()
    assert pages.page(0, "t", default=100) == Page(size=100, token="t")
    assert pages.page(1000, "t", newest_first=True) == Page(size=1000, token="t", newest_first=True)
    assert violations_of(pages.page, 1001, "") == [("page_size", "TOO_LARGE")]
    assert violations_of(pages.page, 0, "t") == [("page_token", "INVALID")]


def test_every_missing_id_is_named() -> None:
    """In the order of the request."""
    required_ids(session_id="s", message_id="m")
    missing = violations_of(required_ids, session_id="", message_id="")
    assert missing == [("session_id", "REQUIRED"), ("message_id", "REQUIRED")]
