"""The checker of Chat Completions' rules refuses each violation, and nothing else."""

from typing import Any

import pytest

from tests.support.rules import check_chat

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
USER = {"role": "user", "content": "hi"}


def call(call_id: Any = "c1", name: Any = "f", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    """Returns a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*calls: dict[str, Any], content: Any = None) -> dict[str, Any]:
    """Returns an answer with these calls."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str = "c1", content: str = "ok") -> dict[str, Any]:
    """Returns the answer to a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def talk(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns a request."""
    return {"model": "m", "messages": list(messages), **more}


def entry(**fields: Any) -> dict[str, Any]:
    """Returns a request with one entry of a user message."""
    return talk({"role": "user", "content": [fields]})


def tool(name: str = "f", schema: Any = None) -> dict[str, Any]:
    """Returns a declared tool."""
    return {"type": "function", "function": {"name": name, "parameters": schema or {"type": "object"}}}


def image(url: str) -> dict[str, Any]:
    """Returns a request with an image."""
    return entry(type="image_url", image_url={"url": url})


def test_a_request_in_order_breaks_no_rule() -> None:
    """With every kind of message and entry."""
    entries = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
    ]
    request = talk(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": entries},
        calling(call(), call("c2"), content="I look"),
        result("c2"),
        result(),
        {"role": "assistant", "content": "done", "reasoning_content": "hm"},
        USER,
        tools=[tool()],
    )
    assert check_chat(request) == []
    assert check_chat(talk(USER, calling(call("123456789")), result("123456789")), mistral=True) == []


BROKEN: list[tuple[dict[str, Any], str]] = [
    (talk(), "messages: nobody has said anything"),
    (talk({"role": "system", "content": "a"}), "messages: nobody has said anything"),
    (talk({"role": "host", "content": "a"}), "messages[0]: unknown role 'host'"),
    (talk(USER | {"parts": []}), "messages[0]: unknown fields ['parts']"),
    (talk({"role": "user", "content": " "}), "messages[0]: blank content"),
    (talk({"role": "user", "content": []}), "messages[0]: content is no text"),
    (talk(USER, {"role": "assistant", "content": None}), "messages[1]: no content"),
    (talk(USER, {"role": "assistant", "content": ""}), "messages[1]: blank content"),
    (talk(USER, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}), "content is no text"),
    (talk(USER, {"role": "assistant", "content": "a", "reasoning_content": ""}), "reasoning_content is empty"),
    (talk(USER, calling()), "messages[1]: tool_calls is empty"),
    (talk(USER, calling(call(), content=""), result()), "messages[1]: blank content"),
    (talk(USER, calling(call())), "messages: no answers to ['c1']"),
    (talk(USER, calling(call()), USER, result()), "messages[2]: stands before the answers to ['c1']"),
    (talk(USER, calling(call(), call("c2")), result(), USER), "messages[3]: stands before the answers to ['c2']"),
    (talk(USER, result()), "messages[1]: an answer without its call 'c1'"),
    (talk(USER, calling(call()), result(), result()), "messages[3]: an answer without its call 'c1'"),
    (talk(USER, calling(call()), result(content="")), "messages[2]: blank content"),
    (talk(USER, calling(call(), call()), result(), result()), "the id 'c1' is taken"),
    (talk(USER, calling(call("x" * 41)), result("x" * 41)), "the id is not 1 to 40 characters"),
    (talk(USER, calling(call("")), result("")), "the id is not 1 to 40 characters"),
    (talk(USER, calling(call(type="custom")), result()), "is no function"),
    (talk(USER, calling(call(name="a.b")), result()), "the name 'a.b' is not"),
    *(
        (talk(USER, calling(call(arguments=arguments)), result()), "the arguments are no JSON object")
        for arguments in ("", "[1]", '{"a":', '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', {}, '{"a":' * 9999)
    ),
    (entry(type="text", text=""), "a blank text"),
    (entry(type="input_text", text="a"), "'input_text' in a message of role user"),
    (image("https://example.com/a.png"), "is no base64 data URL"),
    (image(PNG.replace("png", "gif")), "the file is not image/gif"),
    (image(PDF), "image_url of another media type"),
    (image("data:image/png;base64,"), "the file is empty"),
    (entry(type="file", file={"filename": "", "file_data": PDF}), "a file without its name"),
    (talk(USER, tools=[tool("a b")]), "tools[0]: the name 'a b' is not"),
    (talk(USER, tools=[tool(), tool()]), "tools[1]: the name 'f' is taken"),
    (talk(USER, tools=[tool(schema={"type": "string"})]), "tools[0]: the schema"),
    (talk(USER, temperature=float("nan")), "body: is no JSON"),
]


@pytest.mark.parametrize(("request_body", "violation"), BROKEN)
def test_each_violation_is_found(request_body: dict[str, Any], violation: str) -> None:
    """The sentence names the place."""
    assert [found for found in check_chat(request_body) if violation in found]


def test_mistral_wants_its_own_ids() -> None:
    """Nine letters and digits."""
    request = talk(USER, calling(call()), result())
    assert check_chat(request, mistral=True) == ["messages[1].tool_calls[0]: the id is not 9 letters and digits"]


@pytest.mark.parametrize(
    ("request_body", "violation"),
    [
        (talk(USER, calling(call("123456789")), result("123456789"), USER), "'user' after role 'tool'"),
        (talk(USER, {"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}, USER), "'system' after"),
        (talk(USER, {"role": "assistant", "content": "a"}), "the last one is of role assistant"),
    ],
)
def test_mistral_wants_its_own_order(request_body: dict[str, Any], violation: str) -> None:
    """Nobody but the model speaks behind results, and the last word is not the model's."""
    assert check_chat(request_body) == []
    [found] = check_chat(request_body, mistral=True)
    assert violation in found


def test_deepseek_wants_the_reasoning_of_calls() -> None:
    """Wherever they stand."""
    request = talk(USER, calling(call()), result(), USER)
    assert check_chat(request, deepseek=True) == ["messages[1]: calls without reasoning_content"]
    request["messages"][1]["reasoning_content"] = "hm"
    assert check_chat(request, deepseek=True) == []
