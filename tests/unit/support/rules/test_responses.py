"""The checker of Responses' rules refuses each violation, and nothing else."""

from typing import Any

import pytest

from tests.support.rules import check_responses

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
USER = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SAID = {"role": "assistant", "content": "hi"}
SEALED = ["reasoning.encrypted_content"]
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def call(call_id: Any = "c1", name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    """Returns a call."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str = "c1", text: str = "ok") -> dict[str, Any]:
    """Returns the output of a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def talk(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns a request."""
    return {"model": "m", "store": False, "include": SEALED, "input": list(items), **more}


def entry(role: str = "user", **fields: Any) -> dict[str, Any]:
    """Returns a request with one entry of a message."""
    return talk({"role": role, "content": [fields]})


def tool(name: str = "f", schema: Any = None) -> dict[str, Any]:
    """Returns a declared tool."""
    return {"type": "function", "name": name, "parameters": schema or {"type": "object"}}


def test_a_request_in_order_breaks_no_rule() -> None:
    """With every kind of item."""
    entries = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PNG},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
    ]
    request = talk(
        {"role": "user", "content": entries},
        THOUGHT,
        call(),
        call("c2"),
        output("c2"),
        output(),
        THOUGHT | {"id": "rs_2"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        SAID | {"phase": "final_answer"},
        {"role": "developer", "content": "be brief"},
        USER,
        instructions="be kind",
        tools=[tool()],
    )
    assert check_responses(request) == []


BROKEN: list[tuple[dict[str, Any], str]] = [
    (talk(), "input: is empty"),
    (talk(USER, store=True), "store: is not false"),
    (talk(USER, previous_response_id="r"), "previous_response_id: nothing is stored"),
    (talk(USER, instructions=" "), "instructions: is blank"),
    (talk(USER, tools=[tool("a.b")]), "tools[0]: the name 'a.b' is not"),
    (talk(USER, tools=[tool(), tool()]), "tools[1]: the name 'f' is taken"),
    (talk(USER, tools=[tool(schema={"type": "array"})]), "tools[0]: the schema"),
    (talk({"role": "tool", "content": "a"}), "input[0]: unknown role 'tool'"),
    (talk({"role": "assistant", "content": ""}), "input[0]: blank content"),
    (talk({"role": "user", "content": []}), "input[0]: blank content"),
    (entry(type="input_text", text=" "), "a blank text"),
    (entry(type="text", text="a"), "'text' in a message of role user"),
    (entry("assistant", type="input_text", text="a"), "'input_text' in a message of role assistant"),
    (entry("assistant", type="output_text", text=""), "a blank text"),
    (entry(type="input_image", image_url="https://example.com"), "is no base64 data URL"),
    (entry(type="input_image", image_url=PNG.replace("png", "webp")), "the file is not image/webp"),
    (entry(type="input_image", image_url=PDF), "input_image of another media type"),
    (entry(type="input_file", filename="", file_data=PDF), "a file without its name"),
    (talk(USER, call()), "input: no outputs of ['c1']"),
    (talk(USER, call(), USER, output()), "input[2]: stands before the outputs of ['c1']"),
    (talk(USER, output()), "input[1]: an output without its call 'c1'"),
    (talk(USER, output(), call()), "input[1]: an output without its call 'c1'"),
    (talk(USER, call(), output(), output()), "input[3]: an output without its call 'c1'"),
    (talk(USER, call(), call(), output(), output()), "input[2]: the call_id 'c1' is taken"),
    (talk(USER, call("x" * 65), output("x" * 65)), "the call_id is not 1 to 64 characters"),
    (talk(USER, call(""), output("")), "the call_id is not 1 to 64 characters"),
    (talk(USER, call(name=""), output()), "the name '' is not"),
    (talk(USER, call(arguments="[]"), output()), "the arguments are no JSON object"),
    (talk(USER, call(), output(text="")), "input[2]: a blank output"),
    (talk(USER, {"type": "item_reference", "id": "rs_1"}), "refers to an item that is stored nowhere"),
    (talk(USER, THOUGHT, SAID, include=[]), "not asked for in include"),
    (talk(USER, THOUGHT | {"encrypted_content": None}, SAID), "reasoning without its sealed content"),
    (talk(USER, THOUGHT), "input[1]: reasoning without the item that followed it"),
    (talk(USER, THOUGHT, USER), "input[1]: reasoning without the item that followed it"),
    (talk(USER, THOUGHT, THOUGHT | {"id": "rs_2"}, SAID), "input[1]: reasoning without the item that followed it"),
    (talk(USER, call(), THOUGHT, output()), "input[2]: reasoning without the item that followed it"),
    (talk(USER, THOUGHT, SAID, THOUGHT, SAID), "input: the item id 'rs_1' occurs twice"),
    (talk(USER, top_p=float("nan")), "body: is no JSON"),
]


@pytest.mark.parametrize(("request_body", "violation"), BROKEN)
def test_each_violation_is_found(request_body: dict[str, Any], violation: str) -> None:
    """The sentence names the place."""
    assert [found for found in check_responses(request_body) if violation in found]
