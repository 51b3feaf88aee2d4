"""Requests of the three APIs, from the same neutral history."""

import re
from typing import Any

import msgspec
import pytest

from tests.support.models.provider_requests import (
    DONE_CALL,
    HELLO,
    LOOP,
    anthropic,
    chat,
    message,
    part,
    request,
    responses,
    without_breakpoints,
)
from tests.support.models.wire_requests import body_of
from turnwire.domain.conversation.messages import (
    FinishReason,
    Part,
    PartStatus,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.providers.anthropic.wire import CACHE_BREAKPOINT
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of


def test_tool_loop_chat() -> None:
    """A settled call becomes a tool call and its tool message; arguments keep their text."""
    function = {"name": "f", "arguments": '{"n":1.0}'}
    assert chat(*LOOP)["messages"] == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "let me",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "user", "content": "thanks"},
    ]


def test_tool_loop_responses() -> None:
    """A settled call becomes two items, by call id; nothing is stored at the provider."""
    body = responses(*LOOP)
    assert body["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"role": "assistant", "content": "let me"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"n":1.0}'},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
    ]
    assert body["store"] is False


def test_tool_loop_anthropic() -> None:
    """Results come first in the next user message, which is merged with what the user said."""
    body = anthropic(*LOOP)
    assert body["messages"][-1]["content"][-1]["cache_control"] == CACHE_BREAKPOINT
    assert without_breakpoints(body) == [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"n": 1.0}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "ok"},
                {"type": "text", "text": "thanks"},
            ],
        },
    ]
    assert body["max_tokens"] == 1000


@pytest.mark.parametrize(
    "call",
    [
        part(ToolUse(name="f", call_id="c1", input_json="{}")),
        part(ToolUse(name="f", call_id="c1", input_json='{"n":', status=ToolStatus.CANCELLED, error="cut")),
        part(DONE_CALL, status=PartStatus.INTERRUPTED),
    ],
)
def test_unfinished_calls_are_not_sent(call: Part) -> None:
    """Calls without a result, with cut arguments or interrupted ones leave no trace in any API."""
    history = (HELLO, message("assistant", call), message("user", Text("go on")))
    assert [m["role"] for m in chat(*history)["messages"]] == ["user", "user"]
    assert [i["role"] for i in responses(*history)["input"]] == ["user", "user"]
    assert [m["role"] for m in anthropic(*history)["messages"]] == ["user"]


def test_failed_call() -> None:
    """An error is told to the model; Anthropic has a flag for it. An empty result is never blank."""
    failed = ToolUse(name="f", call_id="c1", input_json="", status=ToolStatus.ERROR, error="boom")
    empty = ToolUse(name="f", call_id="c2", status=ToolStatus.SUCCESS, output="")
    history = (HELLO, message("assistant", failed, empty))
    results = without_breakpoints(anthropic(*history))[-1]["content"]
    assert results == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "boom", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c2", "content": "(no output)"},
    ]
    assert [m["content"] for m in chat(*history)["messages"][2:]] == ["[the call failed]\nboom", "(no output)"]
    outputs = [item["output"] for item in responses(*history)["input"] if item.get("type") == "function_call_output"]
    assert outputs == ["[the call failed]\nboom", "(no output)"]


def test_content_beside_calls_is_null() -> None:
    """Chat Completions refuses an empty text there."""
    assert chat(HELLO, message("assistant", Text(""), DONE_CALL))["messages"][1]["content"] is None


def test_blank_texts_are_not_sent() -> None:
    """An empty text block makes Anthropic refuse every later request; a blank system prompt likewise."""
    body = anthropic(message("user", Text(" "), Text("a")), message("assistant", Text("")), system=" ")
    assert without_breakpoints(body) == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert "system" not in body


def test_final_assistant_text_has_no_trailing_space() -> None:
    """Anthropic refuses it, in a paused answer too, the only one that may come last."""
    paused = msgspec.structs.replace(message("assistant", Text("so far ")), finish_reason=FinishReason.PAUSED)
    body = anthropic(HELLO, paused)
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "so far"}]


def test_first_message_is_the_users() -> None:
    """A conversation that an answer opens gets a user message before it, for Anthropic."""
    roles = [m["role"] for m in anthropic(message("assistant", Text("hi")), HELLO)["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_system_messages() -> None:
    """Leading ones join the system prompt; later ones keep their place. Host messages are never sent."""
    history = (
        message("system", Text("B")),
        message("host", Text("secret")),
        HELLO,
        message("system", Text("C")),
        message("host", Text("secret")),
    )
    assert chat(*history, system="A")["messages"] == [
        {"role": "system", "content": "A\n\nB"},
        {"role": "user", "content": "hello"},
        {"role": "system", "content": "C"},
    ]
    body = responses(*history, system="A")
    assert body["instructions"] == "A\n\nB"
    assert body["input"][-1] == {"role": "developer", "content": "C"}
    body = anthropic(*history, system="A")
    assert body["system"] == [{"type": "text", "text": "A\n\nB", "cache_control": CACHE_BREAKPOINT}]
    assert without_breakpoints(body) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "<system>\nC\n</system>"}],
        }
    ]


def test_refusal_is_sent_as_text() -> None:
    """The model's refusal is what it said."""
    assert chat(HELLO, message("assistant", Refusal("no")))["messages"][-1] == {"role": "assistant", "content": "no"}


def test_tools() -> None:
    """Names become acceptable, deterministically; a tool without schema takes no arguments."""
    tool = ToolDefinition("fs.read", "Reads.", "")
    empty = {"type": "object", "properties": {}}
    name = chat(HELLO, tools=(tool,))["tools"][0]["function"]["name"]
    assert re.fullmatch(r"fs_read_[0-9a-f]{8}", name)
    assert responses(HELLO, tools=(tool,))["tools"] == [
        {"type": "function", "name": name, "description": "Reads.", "parameters": empty, "strict": False}
    ]
    assert anthropic(HELLO, tools=(tool,))["tools"] == [
        {"name": name, "description": "Reads.", "input_schema": empty, "cache_control": CACHE_BREAKPOINT}
    ]


@pytest.mark.parametrize(("base_url", "pattern"), [("", r"call_[0-9a-f]{24}"), ("https://api.mistral.ai/v1", r"\w{9}")])
@pytest.mark.parametrize("call_id", ["", "x" * 41, "has space"])
def test_call_ids(base_url: str, pattern: str, call_id: str) -> None:
    """An id that the API refuses is replaced, in the call and in its result, and the same each time."""
    call = ToolUse(name="f", call_id=call_id, input_json="{}", status=ToolStatus.SUCCESS, output="ok")
    bodies = [chat(HELLO, message("assistant", call), base_url=base_url) for _ in range(2)]
    assert bodies[0] == bodies[1]
    sent = bodies[0]["messages"][1]["tool_calls"][0]["id"]
    assert re.fullmatch(pattern, sent)
    assert bodies[0]["messages"][2]["tool_call_id"] == sent


def test_repeated_call_ids_become_unique() -> None:
    """Two calls of a history may have the same id; two of a request may not."""
    history = [message("assistant", Part(part_id=f"p{n}", index=0, content=DONE_CALL)) for n in range(2)]
    blocks = [b["id"] for m in anthropic(HELLO, *history)["messages"] for b in m["content"] if b["type"] == "tool_use"]
    assert len(set(blocks)) == 2


def test_stray_tool_results() -> None:
    """A result whose call is not sent becomes user text; one that a call carries already is left out."""
    stray = message("tool_result", ToolResult(call_id="zz", output="42"))
    paired = message("tool_result", ToolResult(call_id="c1", output="ok"))
    sent = chat(HELLO, message("assistant", DONE_CALL), paired, stray)["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user"]
    assert sent[-1]["content"] == "[result of tool call zz]\n42"


@pytest.mark.parametrize(
    ("result", "head"),
    [
        (
            ToolResult(call_id="", output="no", is_error=True, exit_code=2),
            "[result of a tool call: failed, exit code 2]",
        ),
        (ToolResult(call_id=" ", output="no", is_error=True), "[result of a tool call: failed]"),
        (ToolResult(call_id="zz", output="no", exit_code=0), "[result of tool call zz: exit code 0]"),
        (ToolResult(call_id="", output="no"), "[result of a tool call]"),
    ],
)
def test_stray_results_tell_how_they_ended(result: ToolResult, head: str) -> None:
    """A failure and the exit code, in every API; an id that there is not is not named."""
    history = (HELLO, message("tool_result", result))
    assert chat(*history)["messages"][-1]["content"] == f"{head}\nno"
    assert responses(*history)["input"][-1]["content"][-1]["text"] == f"{head}\nno"
    assert without_breakpoints(anthropic(*history))[-1]["content"][-1]["text"] == f"{head}\nno"


OPTIONS = GenerationOptions(temperature=0.5, top_p=0.9, max_output_tokens=7, stop_sequences=("x",))


def test_options() -> None:
    """Each API's names; Anthropic's limit is demanded; the old name of the limit for look-alikes."""
    body = chat(HELLO, options=OPTIONS)
    assert (body["temperature"], body["top_p"], body["max_completion_tokens"], body["stop"]) == (0.5, 0.9, 7, ["x"])
    assert chat(HELLO, options=OPTIONS, base_url="http://localhost/v1")["max_tokens"] == 7
    body = responses(HELLO, options=OPTIONS)
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 7)
    body = anthropic(HELLO, options=OPTIONS)
    assert (body["temperature"], body["max_tokens"], body["stop_sequences"]) == (0.5, 7, ["x"])
    assert "top_p" not in body
    assert anthropic(HELLO, options=GenerationOptions(top_p=0.9))["top_p"] == 0.9


def test_usage_is_asked_for_unless_refused() -> None:
    """Some servers refuse the option."""
    assert chat(HELLO)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body_of(ChatWriter("p", dialect_of("", False, False)).prepare(request(HELLO)))


def test_next_request_extends_this_one() -> None:
    """Prompt caches: what was sent stays as it was when the conversation goes on."""
    more = (*LOOP, message("assistant", Text("welcome")), message("user", Text("bye")))
    assert chat(*more)["messages"][: len(chat(*LOOP)["messages"])] == chat(*LOOP)["messages"]
    assert responses(*more)["input"][: len(responses(*LOOP)["input"])] == responses(*LOOP)["input"]
    assert without_breakpoints(anthropic(*more))[:3] == without_breakpoints(anthropic(*LOOP))


MISTRAL_URL = "https://api.mistral.ai/v1"
BE_BRIEF = message("system", Text("be brief"))


@pytest.mark.parametrize(
    ("history", "roles"),
    [
        ((HELLO, message("assistant", DONE_CALL), HELLO), "user assistant tool assistant user"),
        ((HELLO, message("assistant", DONE_CALL)), "user assistant tool"),
        (
            (HELLO, message("assistant", DONE_CALL), message("assistant", Text("hi"))),
            "user assistant tool assistant user",
        ),
        ((HELLO, message("assistant", Text("hi")), BE_BRIEF, HELLO), "user assistant user user"),
        ((BE_BRIEF, HELLO), "system user"),
        ((HELLO, message("assistant", Text("hi")), message("user", Text(" "))), "user assistant user"),
    ],
)
@pytest.mark.parametrize("where", [{"base_url": MISTRAL_URL}, {"model_id": "mistralai/Devstral-Small-2507"}])
def test_the_order_of_speakers_that_mistral_wants(history: Any, roles: str, where: dict[str, str]) -> None:
    """After results of tools only the model may speak, and after the model no system; the user comes last."""
    sent = chat(*history, **where)["messages"]
    assert " ".join(m["role"] for m in sent) == roles


def test_a_user_who_speaks_right_after_results_stays_as_he_is_elsewhere() -> None:
    """As after an abort: no other server wants the model's word between."""
    sent = chat(HELLO, message("assistant", DONE_CALL), BE_BRIEF, HELLO)["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "system", "user"]


@pytest.mark.parametrize("name", ["n" * 65, "n" * 200, "ünï.code" * 20, "a b", ""])
def test_names_of_tools_that_no_api_takes(name: str) -> None:
    """At most 64 of [A-Za-z0-9_-], and never the same for two tools."""
    sent = anthropic(HELLO, tools=(ToolDefinition(name, "", ""), ToolDefinition(f"{name}!", "", "")))["tools"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool["name"]) for tool in sent)
    assert sent[0]["name"] != sent[1]["name"]
