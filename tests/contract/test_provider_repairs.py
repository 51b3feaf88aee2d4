"""What each adapter tells of what it leaves out, replaces or adds."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.models.provider_requests import DONE_CALL, HELLO, LOOP, PNG, message, part, request
from tests.support.models.wire_requests import body_of
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions, ToolChoice, ToolChoiceMode, ToolDefinition
from turnwire.ports.provider import PreparedRequest
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.offline.request import OfflineWriter
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of
from turnwire.providers.openai_responses.request import ResponsesWriter

Prepare = Callable[..., PreparedRequest]

ANTHROPIC: Prepare = lambda *messages, **more: AnthropicWriter("p", 1000).prepare(request(*messages, **more))  # noqa: E731
CHAT: Prepare = lambda *messages, **more: ChatWriter("p", dialect_of("", True, False)).prepare(  # noqa: E731
    request(*messages, **more)
)
RESPONSES: Prepare = lambda *messages, **more: ResponsesWriter("p", "").prepare(request(*messages, **more))  # noqa: E731
OFFLINE: Prepare = lambda *messages, **more: OfflineWriter().prepare(request(*messages, **more))  # noqa: E731

APIS = {"anthropic": ANTHROPIC, "openai_chat": CHAT, "openai_responses": RESPONSES}
USER = message("user", Text("next"))


def told(prepared: PreparedRequest) -> list[tuple[str, str, int | None]]:
    """Returns action, reason and part of each repair."""
    return [(str(repair.action), repair.reason, repair.part_index) for repair in prepared.repairs]


def sealed(content: Any, index: int = 0, api: str = "anthropic", model: str = "m", **fields: Any) -> Part:
    """Returns a part with its provider's state."""
    state = json.dumps({"api": api, "model": model, **fields})
    return Part(part_id=f"p{index}", index=index, content=content, provider_state=state)


def thought(api: str, **more: Any) -> Part:
    """Returns reasoning in the form that goes back to the API."""
    fields: dict[str, dict[str, Any]] = {
        "anthropic": {"signature": "s"},
        "openai_chat": {"reasoning_details": [{"type": "reasoning.text"}]},
        "openai_responses": {"item": {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "g"}},
    }
    return sealed(Reasoning("hm"), api=api, **{**fields[api], **more})


@pytest.mark.parametrize("api", APIS)
def test_nothing_is_told_where_nothing_is_lost(api: str) -> None:
    """Merged neighbours, leading system messages, refusals, own reasoning, files that can be seen, inlined text."""
    files = (
        File(sha256="a", size_bytes=4, mime="image/png", filename="a.png"),
        File(sha256="b", size_bytes=4, mime="text/plain", filename="b.txt"),
    )
    call = Part(part_id="c", index=1, content=msgspec.structs.replace(DONE_CALL, call_id="c0", files=files))
    own = Part(part_id="r", index=2, content=Refusal("no"))
    history = (message("system", Text("short")), HELLO, USER, message("user", *files))
    history = (*history, message("assistant", thought(api), call, own), USER, *LOOP)
    tools = (ToolDefinition("f", "", "{}"), ToolDefinition("g", "", ""))
    options = GenerationOptions(temperature=0.5, max_output_tokens=9)
    more: dict[str, Any] = {"files": {"a": PNG, "b": b"words"}, "tools": tools, "options": options, "system": "kind"}
    assert APIS[api](*history, **more).repairs == ()


DUPLICATE = Part(part_id="other", index=1, content=DONE_CALL)

SAME_EVERYWHERE: list[tuple[Message, list[tuple[str, str, int | None]]]] = [
    (message("host", Text("x")), [("dropped", "HOST_MESSAGE", None)]),
    (message("user", Text("a"), Text(" ")), [("dropped", "EMPTY", 1)]),
    (message("user", Reasoning("x"), Text("a")), [("dropped", "MISPLACED", 0)]),
    (message("assistant", ToolResult(call_id="c", output=""), Text("a")), [("dropped", "MISPLACED", 0)]),
    (message("assistant", ToolUse(name="f")), [("dropped", "OPEN_CALL", 0)]),
    (message("assistant", part(DONE_CALL, status=PartStatus.INTERRUPTED)), [("dropped", "CUT_CALL", 0)]),
    (
        message("assistant", ToolUse(name="f", call_id="c", input_json="[", status=ToolStatus.CANCELLED)),
        [("dropped", "CUT_CALL", 0)],
    ),
    (
        message("assistant", ToolUse(name="f", call_id="c", input_json="[", status=ToolStatus.ERROR)),
        [("replaced", "ARGUMENTS_NO_OBJECT", 0)],
    ),
    (message("tool_result", ToolResult(call_id="c", output="x")), [("replaced", "RESULT_WITHOUT_CALL", 0)]),
    (message("assistant", DONE_CALL, DUPLICATE), [("replaced", "ID_MAPPED", 1)]),
    (message("assistant", msgspec.structs.replace(DONE_CALL, name="a.b"), Text("x")), [("replaced", "NAME_MAPPED", 0)]),
    (
        message("user", File(sha256="bin", size_bytes=2, mime="application/x", filename="f")),
        [("replaced", "FILE_NOT_SHOWN", 0)],
    ),
    (
        message("user", File(sha256="gone", size_bytes=2, mime="image/png", filename="f")),
        [("replaced", "FILE_NOT_AVAILABLE", 0)],
    ),
    (
        message("assistant", File(sha256="bin", size_bytes=2, mime="image/png", filename="f")),
        [("replaced", "FILE_NOT_SHOWN", 0)],
    ),
    (
        message("assistant", sealed(Reasoning("x"), api="another"), Text("a")),
        [("dropped", "REASONING_OF_ANOTHER_MODEL", 0)],
    ),
    (
        message("assistant", sealed(ProviderContent("x"), api="another"), Text("a")),
        [("dropped", "STATE_OF_ANOTHER_MODEL", 0)],
    ),
    (message("assistant", sealed(Text("x"), api="another")), [("dropped", "STATE_OF_ANOTHER_MODEL", 0)]),
    (message("assistant", part(Text("x"), "[")), [("dropped", "UNUSABLE_STATE", 0)]),
    (message("assistant", ProviderContent("x"), Text("a")), [("dropped", "UNSEALED_CONTENT", 0)]),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("odd", "expected"), SAME_EVERYWHERE)
def test_repairs_that_all_apis_need(api: str, odd: Message, expected: list[tuple[str, str, int | None]]) -> None:
    """Each names its message and part."""
    odd = msgspec.structs.replace(odd, message_id="odd")
    prepared = APIS[api](HELLO, odd, USER, files={"bin": b"\xff\x00"})
    assert told(prepared) == expected
    assert {repair.message_id for repair in prepared.repairs} == {"odd"}


@pytest.mark.parametrize("api", APIS)
def test_a_result_that_its_call_carries(api: str) -> None:
    """It is sent once."""
    history = (HELLO, message("assistant", DONE_CALL), message("tool_result", ToolResult(call_id="c1", output="ok")))
    assert told(APIS[api](*history)) == [("dropped", "RESULT_SHOWN_WITH_CALL", 0)]


@pytest.mark.parametrize("api", APIS)
def test_reasoning_that_leads_nowhere(api: str) -> None:
    """Alone it is refused."""
    assert told(APIS[api](HELLO, message("assistant", thought(api)), USER)) == [
        ("dropped", "REASONING_LEADS_NOWHERE", 0)
    ]


@pytest.mark.parametrize("api", APIS)
def test_reasoning_of_another_model_of_the_provider(api: str) -> None:
    """A seal is bound to the model."""
    answer = message("assistant", thought(api, model="other"), Text("a"))
    assert told(APIS[api](HELLO, answer, USER)) == [("dropped", "REASONING_OF_ANOTHER_MODEL", 0)]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("content", [Reasoning("x"), ProviderContent("x"), Text("x")])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"block": 1, "item": 1, "signature": 1, "phase": 1, "citations": 1, "reasoning_details": 1},
        {"block": {}, "item": {}, "signature": "", "phase": "", "citations": [], "reasoning_details": []},
        {"block": {"type": 5}, "item": [], "reasoning_details": {}},
    ],
)
def test_state_of_an_unknown_form_is_told_and_breaks_nothing(api: str, content: Any, fields: dict[str, Any]) -> None:
    """No request fails for it."""
    prepared = APIS[api](HELLO, message("assistant", sealed(content, api=api, **fields), Text("a")), USER)
    reasons = {repair.reason for repair in prepared.repairs}
    assert reasons in ({"UNUSABLE_STATE"}, {"REASONING_NOT_TAKEN"})
    assert (reasons == {"REASONING_NOT_TAKEN"}) is (api == "openai_chat" and isinstance(content, Reasoning))


@pytest.mark.parametrize("api", APIS)
def test_a_tool_name_is_told_once(api: str) -> None:
    """However often the tool is called."""
    call = msgspec.structs.replace(DONE_CALL, name="a.b")
    calls = [Part(part_id=f"c{n}", index=n, content=msgspec.structs.replace(call, call_id=f"c{n}")) for n in range(3)]
    prepared = APIS[api](HELLO, message("assistant", *calls), tools=(ToolDefinition("a.b", "", ""),))
    assert told(prepared) == [("replaced", "NAME_MAPPED", 0)]
    assert told(APIS[api](HELLO, tools=(ToolDefinition("a.b", "", "[]"),))) == [
        ("replaced", "SCHEMA_NO_OBJECT", None),
        ("replaced", "NAME_MAPPED", None),
    ]


@pytest.mark.parametrize("api", APIS)
def test_made_to_speak(api: str) -> None:
    """Before an answer that opens the conversation, and in one without any message; the next request keeps it."""
    assert told(APIS[api]()) == [("added", "CONVERSATION_CONTINUES", None)]
    opened = APIS[api](message("assistant", Text("hi")), HELLO)
    assert told(opened) == [("added", "CONVERSATION_CONTINUES", None)]
    assert opened.repairs[0].message_id == "x"


def test_made_to_speak_after_an_answer() -> None:
    """Anthropic's newer models refuse an answer at the end; the words stay when the answer after it has come."""
    first, second = message("assistant", Text("so far")), message("assistant", Text("and on"))
    (repair,) = ANTHROPIC(HELLO, first).repairs
    assert (repair.reason, repair.message_id) == ("CONVERSATION_CONTINUES", "")
    second = msgspec.structs.replace(second, message_id="second")
    prepared = ANTHROPIC(HELLO, first, second, USER)
    assert [entry["role"] for entry in body_of(prepared)["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert [(repair.reason, repair.message_id) for repair in prepared.repairs] == [("CONVERSATION_CONTINUES", "second")]


@pytest.mark.parametrize(
    "content",
    [
        sealed(Reasoning("hm"), signature="s"),
        sealed(Reasoning(""), block={"type": "redacted_thinking", "data": "AA"}),
        sealed(ProviderContent("x"), block={"type": "x", "signature": "s"}),
    ],
)
def test_signed_blocks_stay_with_their_prefix(content: Part) -> None:
    """Anthropic refuses them after another beginning; what is not signed goes on being sent."""
    answer = message("assistant", content, sealed(ProviderContent("y"), 1, block={"type": "y"}), Text("a"))
    answer = msgspec.structs.replace(answer, message_id="made before")
    kept = ANTHROPIC(HELLO, answer, USER)
    assert (len(body_of(kept)["messages"][1]["content"]), kept.repairs) == (3, ())
    changed = ANTHROPIC(HELLO, answer, USER, prefix_changed=frozenset({"made before"}))
    assert [block["type"] for block in body_of(changed)["messages"][1]["content"]] == ["y", "text"]
    assert told(changed) == [("dropped", "PREFIX_CHANGED", 0)]


@pytest.mark.parametrize("api", ["openai_chat", "openai_responses"])
def test_other_seals_are_not_bound_to_their_prefix(api: str) -> None:
    """They are sent whatever stands before them."""
    history = (HELLO, message("assistant", thought(api), Part(part_id="t", index=1, content=Text("a"))), USER)
    assert APIS[api](*history, prefix_changed=frozenset({"x"})) == msgspec.structs.replace(
        APIS[api](*history), request=request(*history, prefix_changed=frozenset({"x"}))
    )


def test_halves_of_hosted_calls() -> None:
    """With the thinking that led to them."""
    call = sealed(ProviderContent("server_tool_use"), 2, block={"type": "server_tool_use", "id": "s1"})
    thinking = Part(part_id="t", index=1, content=Reasoning("hm"), provider_state=thought("anthropic").provider_state)
    prepared = ANTHROPIC(HELLO, message("assistant", Text("I look"), thinking, call), USER)
    assert told(prepared) == [("dropped", "REASONING_LEADS_NOWHERE", 1), ("dropped", "HALF_OF_HOSTED_CALL", 2)]


@pytest.mark.parametrize("api", APIS)
def test_system_messages_are_text(api: str) -> None:
    """A file in one is left out."""
    file = File(sha256="png", size_bytes=4, mime="image/png", filename="f.png")
    system = message("system", Text("be brief"), file)
    assert told(APIS[api](system, HELLO, files={"png": PNG})) == [("dropped", "MISPLACED", 1)]


def test_system_messages_and_trailing_space_of_anthropic() -> None:
    """System messages become text; an answer that goes on does not end with white space."""
    assert told(ANTHROPIC(HELLO, message("system", Text("now")))) == [("replaced", "SYSTEM_AS_USER_TEXT", None)]
    paused = msgspec.structs.replace(message("assistant", Text("so far ")), finish_reason=FinishReason.PAUSED)
    assert told(ANTHROPIC(HELLO, paused)) == [("replaced", "TRAILING_SPACE", 0)]


def test_readable_reasoning_of_chat() -> None:
    """Only some servers take it, and only from its own model."""
    own = message("assistant", Reasoning("hm"), Text("a"))
    assert told(CHAT(HELLO, own)) == [("dropped", "REASONING_NOT_TAKEN", 0)]
    taking = ChatWriter("p", dialect_of("http://d", True, True)).prepare(request(HELLO, own))
    assert taking.repairs == ()
    marked = sealed(Reasoning("hm"), api="openai_chat", readable=True)
    taking = ChatWriter("p", dialect_of("http://d", True, True)).prepare(
        request(HELLO, message("assistant", marked, Text("a")))
    )
    assert (body_of(taking)["messages"][1]["reasoning_content"], taking.repairs) == ("hm", ())
    other = message("assistant", Reasoning("hm"), Text("a"), model="other")
    assert told(CHAT(HELLO, other)) == [("dropped", "REASONING_OF_ANOTHER_MODEL", 0)]


def test_reasoning_items_without_their_seal() -> None:
    """OpenAI would look for them where nothing is stored."""
    item = sealed(Reasoning("x"), api="openai_responses", item={"type": "reasoning", "id": "rs"})
    answer = message("assistant", item, Part(part_id="t", index=1, content=Text("a")))
    assert told(RESPONSES(HELLO, answer)) == [("dropped", "UNSEALED_REASONING", 0)]


ALL_OPTIONS = GenerationOptions(temperature=0.5, top_p=0.9, stop_sequences=("x",), reasoning_effort="minimal")


@pytest.mark.parametrize(
    ("prepare", "model_id", "explained"),
    [
        (
            ANTHROPIC, "claude-opus-4-8",
            ["temperature 0.5: it cannot be combined with reasoning.",
             "top_p 0.9: it cannot be combined with reasoning.",
             "reasoning_effort minimal: the lowest that the API accepts is low."],
        ),
        (RESPONSES, "gpt-5", ["stop_sequences ['x']: the API has no such option."]),
        (CHAT, "gpt-5", []),
        (
            OFFLINE, "echo",
            ["temperature 0.5: offline models ignore it.", "top_p 0.9: offline models ignore it.",
             "stop_sequences ('x',): offline models ignore it.",
             "reasoning_effort minimal: offline models ignore it."],
        ),
    ],
)  # fmt: skip
def test_options_that_are_not_taken(prepare: Prepare, model_id: str, explained: list[str]) -> None:
    """They are about the request as a whole, and come last."""
    prepared = prepare(message("host", Text("x")), HELLO, options=ALL_OPTIONS, model_id=model_id)
    assert prepared.repairs[0].reason == "HOST_MESSAGE"
    assert [repair.explanation for repair in prepared.repairs[1:]] == explained
    assert all(repair.reason == "OPTION_NOT_TAKEN" and not repair.message_id for repair in prepared.repairs[1:])


def test_a_forced_call_is_not_combined_with_reasoning() -> None:
    """Anthropic refuses both together; a choice that forces none stays."""
    for mode, kept in ((ToolChoiceMode.REQUIRED, None), (ToolChoiceMode.AUTO, {"type": "auto"})):
        options = GenerationOptions(reasoning_effort="low", tool_choice=ToolChoice(mode))
        tools = (ToolDefinition("f", "", "{}"),)
        prepared = ANTHROPIC(HELLO, options=options, model_id="claude-opus-4-8", tools=tools)
        assert body_of(prepared).get("tool_choice") == kept
        assert told(prepared) == ([] if kept else [("dropped", "OPTION_NOT_TAKEN", None)])


def test_an_effort_that_nobody_knows() -> None:
    """Models that think by a budget get a middle one."""
    options = GenerationOptions(reasoning_effort="wild")
    prepared = ANTHROPIC(HELLO, options=options, model_id="claude-sonnet-4-5")
    assert body_of(prepared)["thinking"]["budget_tokens"] == 8192
    assert told(prepared) == [("replaced", "OPTION_NOT_TAKEN", None)]


def test_offline_shows_all_that_it_gets() -> None:
    """Readable, without bytes; what only another provider understands is left out."""
    file = File(sha256="a", size_bytes=3, mime="text/plain", filename="a.txt")
    call = msgspec.structs.replace(DONE_CALL, files=(file,))
    history = (
        message("user", Text("a"), Text("b"), file),
        message("assistant", Reasoning("hm"), Text("let me"), Refusal("no"), call),
        message("assistant", thought("anthropic"), sealed(Reasoning(""), 1, signature="s"), ProviderContent("x")),
        message("tool_result", ToolResult(call_id="c", output="o")),
        message("host", Text("secret")),
    )
    tools = (ToolDefinition("f", "Does.", '{"type":"object"}'),)
    prepared = OFFLINE(*history, tools=tools, options=GenerationOptions(max_output_tokens=3), system="kind")
    shown_file = {"name": "a.txt", "mime": "text/plain", "size_bytes": 3}
    shown_call = {
        "call_id": "c1", "name": "f", "arguments": '{"n":1.0}', "status": "success", "output": "ok",
        "files": [shown_file],
    }  # fmt: skip
    assert body_of(prepared) == {
        "model": "m",
        "system": "kind",
        "messages": [
            {"role": "user", "text": ["a", "b"], "files": [shown_file]},
            {
                "role": "assistant",
                "reasoning": ["hm"],
                "text": ["let me"],
                "refusal": ["no"],
                "tool_calls": [shown_call],
            },
            {"role": "assistant", "reasoning": ["hm"]},
            {"role": "tool_result", "tool_results": [{"call_id": "c", "output": "o", "is_error": False}]},
        ],
        "tools": [{"name": "f", "description": "Does.", "input_schema": {"type": "object"}}],
        "options": {"max_output_tokens": 3},
    }
    assert sorted(told(prepared)) == [
        ("dropped", "HOST_MESSAGE", None),
        ("dropped", "REASONING_OF_ANOTHER_MODEL", 1),
        ("dropped", "STATE_OF_ANOTHER_MODEL", 2),
    ]
