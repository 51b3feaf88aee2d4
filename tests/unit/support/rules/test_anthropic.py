"""The checker of Anthropic's rules refuses each violation, and nothing else."""

import copy
from typing import Any

import pytest

from tests.support.rules import check_anthropic

PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def text(words: str = "hi") -> dict[str, Any]:
    """Returns a text block."""
    return {"type": "text", "text": words}


def talk(*contents: Any, **more: Any) -> dict[str, Any]:
    """Returns a request in which user and assistant speak in turn."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[index % 2], "content": content if isinstance(content, str) else list(content)}
        for index, content in enumerate(contents)
    ]
    return copy.deepcopy({"model": "m", "max_tokens": 10, "messages": messages, **more})


TOOL = {"name": "f", "description": "", "input_schema": {"type": "object"}}
WHOLE = talk(
    (text(), {"type": "image", "source": PNG}, {"type": "document", "source": PDF, "title": "a.pdf"}),
    (THINKING, {"type": "redacted_thinking", "data": "AA"}, text(), SEARCH, FOUND, CALL),
    (RESULT, text()),
    "so",
    "go on",
    system=[text("be brief")],
    tools=[TOOL],
)


def test_a_request_in_order_breaks_no_rule() -> None:
    """With every kind of block."""
    assert check_anthropic(WHOLE) == []


def test_a_paused_answer_may_be_last() -> None:
    """With its hosted call still open."""
    assert check_anthropic(talk("hi", (text(), SEARCH)), continues_pause=True) == []
    assert check_anthropic(talk("hi", (SEARCH, CALL), (RESULT,))) == []


def twice(role: str) -> dict[str, Any]:
    """Returns a request with two messages of one role in a row."""
    request = talk("a", "b", "c")
    request["messages"][1]["role"] = role
    return request


BROKEN: list[tuple[dict[str, Any], str]] = [
    (talk(), "messages: is empty"),
    (talk("hi") | {"max_tokens": 0}, "max_tokens: is required"),
    (talk("hi", thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=2000), "thinking: the budget"),
    (talk("hi", thinking={"type": "enabled", "budget_tokens": 100}, max_tokens=2000), "thinking: the budget"),
    (talk("hi", thinking={"type": "adaptive"}, temperature=1), "temperature: not with thinking"),
    (talk("hi", system=" "), "system: is blank"),
    (talk("hi", system=[text("")]), "system: is blank"),
    (talk("hi", system=[]), "system: is blank"),
    (talk("hi", tools=[TOOL | {"name": "a.b"}]), "tools[0]: the name 'a.b' is not"),
    (talk("hi", tools=[TOOL, TOOL]), "tools[1]: the name 'f' is taken"),
    (talk("hi", tools=[TOOL | {"input_schema": {}}]), "tools[0]: the schema"),
    (talk([text() | {"cache_control": {"type": "ephemeral"}}] * 5), "cache_control: more than 4"),
    (twice("user"), "messages[1]: a second message of role user"),
    (twice("system"), "messages[1]: unknown role 'system'"),
    ({**talk("a", "b", "c"), "messages": talk("a", "b", "c")["messages"][1:]}, "messages[0]: is not the user's"),
    (talk("a", [], "b"), "messages[1]: is empty"),
    (talk("a", "b"), "messages[1]: an assistant message is the last one"),
    (talk(" "), "messages[0].content[0]: a blank text"),
    (talk("a", [text("\n")], "b"), "messages[1].content[0]: a blank text"),
    (talk("a", [THINKING | {"signature": ""}, text()], "b"), "thinking without its signature"),
    (talk("a", [{"type": "redacted_thinking"}, text()], "b"), "redacted thinking without its data"),
    (talk("a", [text(), THINKING], "b"), "messages[1]: the last block is thinking"),
    (talk("a", temperature=0.5, top_p=0.9), "top_p: not with a temperature"),
    (talk([THINKING, text()]), "thinking in a message of role user"),
    (talk("a", [CALL], [text(), RESULT]), "messages[2]: a tool_result stands behind another block"),
    (talk("a", [CALL], "b"), "messages[1]: 'c1' has no result in the next message"),
    (talk("a", [CALL, text()], "b", "c", [RESULT]), "messages[1]: 'c1' has no result in the next message"),
    (talk("a", "b", [RESULT]), "messages[2]: result without its call 'c1'"),
    (talk("a", [CALL], [RESULT, RESULT]), "messages[2]: a second result for 'c1'"),
    (talk("a", [CALL, CALL], [RESULT]), "messages[1]: the tool_use id 'c1' is taken"),
    (talk("a", [CALL], [RESULT], [CALL], [RESULT]), "messages[3]: the tool_use id 'c1' is taken"),
    (talk("a", [CALL], [RESULT | {"content": ""}]), "a blank result"),
    (talk("a", [CALL | {"name": ""}], [RESULT]), "the name '' is not"),
    (talk("a", [CALL | {"id": "ü"}], [RESULT | {"tool_use_id": "ü"}]), "the id 'ü' is not"),
    (talk("a", [CALL | {"id": "x" * 65}], [RESULT | {"tool_use_id": "x" * 65}]), "is not [A-Za-z0-9_-]{1,64}"),
    (talk("a", [CALL | {"input": [1]}], [RESULT]), "the input is no object"),
    (talk("a", [CALL | {"input": {"n": float("inf")}}], [RESULT]), "body: is no JSON"),
    (talk("a\ud800"), "body: is no JSON"),
    (talk("a", [SEARCH, text()], "b"), "messages[1]: the hosted call 's1' has no result"),
    (talk("a", [FOUND, text()], "b"), "web_search_tool_result without its call 's1'"),
    (talk([{"type": "image", "source": {"type": "url", "url": "u"}}]), "the source is not base64"),
    (talk([{"type": "image", "source": PNG | {"media_type": "image/bmp"}}]), "media type 'image/bmp'"),
    (talk([{"type": "image", "source": PNG | {"media_type": "image/gif"}}]), "the file is not image/gif"),
    (talk([{"type": "image", "source": PNG | {"data": ""}}]), "the file is empty"),
    (talk([{"type": "image", "source": PNG | {"data": "!"}}]), "the file is no base64"),
    (talk([{"type": "document", "source": PDF, "title": ""}]), "the title is not"),
    (talk([{"type": "input_text", "text": "a"}]), "unknown block 'input_text'"),
]


@pytest.mark.parametrize(("request_body", "violation"), BROKEN)
def test_each_violation_is_found(request_body: dict[str, Any], violation: str) -> None:
    """The sentence names the place."""
    assert [found for found in check_anthropic(request_body) if violation in found]


def test_white_space_at_the_end_of_a_paused_answer() -> None:
    """Is refused there too."""
    assert check_anthropic(talk("a", "b "), continues_pause=True) == [
        "messages[1]: the final assistant text ends with white space"
    ]


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}


@pytest.mark.parametrize(
    ("contents", "broken"),
    [
        (("a", [CALL], [RESULT]), True),
        (("a", [text(), CALL], [RESULT, text()]), True),
        (("a", [THINKING, CALL], [RESULT]), False),
        (("a", [THINKING, CALL], [RESULT], [CALL | {"id": "c2"}], [RESULT | {"tool_use_id": "c2"}]), False),
        (("a", [CALL], [RESULT], [THINKING, CALL | {"id": "c2"}], [RESULT | {"tool_use_id": "c2"}]), True),
        (("a", [CALL], [RESULT], [text()], "b"), False),
        (("a", [CALL], [RESULT, text()], [THINKING, CALL | {"id": "c2"}], [RESULT | {"tool_use_id": "c2"}]), False),
    ],
)
def test_what_goes_on_with_a_budget_began_with_thinking(contents: Any, broken: bool) -> None:
    """All steps of a tool loop are one answer; those of ended turns do not count."""
    found = [violation for violation in check_anthropic(talk(*contents, **BUDGET)) if "goes on" in violation]
    assert bool(found) is broken
    assert not [v for v in check_anthropic(talk(*contents, thinking={"type": "adaptive"})) if "goes on" in v]
