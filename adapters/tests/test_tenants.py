"""Ids of another tenant are unknown ids, on every path of every adapter; without a token nobody is answered."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from adapters.tests.conftest import serving
from tests.support.servers.tenants import PROVIDER, server_of_tenants

SECRET = "lighthouse"
Call = tuple[str, str, Any]


def bearer(tenant: str) -> dict[str, str]:
    """Returns the header of a caller of a tenant."""
    return {"authorization": f"Bearer {PROVIDER.token(sub=tenant, tenant=tenant, role='writer')}"}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of all adapters before a server that asks who calls."""
    async with (
        server_of_tenants(tmp_path) as server,
        serving(server.address, ["responses", "opencode", "maria", "plue"]) as base,
        httpx2.AsyncClient(base_url=base, timeout=30) as client,
    ):
        yield client


async def calls_with_ids(http: httpx2.AsyncClient) -> list[Call]:
    """Makes something by each adapter for tenant `one`, and returns calls with its ids."""

    async def made(path: str, body: Any) -> Any:
        answer = await http.post(path, json=body, headers=bearer("one"))
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    user = {"role": "user", "content": SECRET}
    conversation = (await made("/v1/conversations", {"items": [user]}))["id"]
    asked = {"model": "offline/echo", "input": SECRET, "conversation": conversation}
    response = (answered := await made("/v1/responses", asked))["id"]
    item = answered["output"][0]["id"]
    one, of = f"/v1/responses/{response}", f"/v1/conversations/{conversation}"
    calls: list[Call] = [
        *(("GET", one + path, None) for path in ("", "?stream=true&starting_after=0", "/input_items")),
        *(("POST", f"{one}/cancel", None), ("DELETE", one, None)),
        ("POST", "/v1/responses", {**asked, "conversation": None, "previous_response_id": response}),
        ("POST", "/v1/responses", {**asked, "conversation": {"id": conversation}}),
        ("POST", "/v1/responses", {"model": "offline/echo", "input": [{"type": "item_reference", "id": item}, user]}),
        *(("GET", of + path, None) for path in ("", "/items", f"/items/{item}")),
        *(("POST", of, {"metadata": {}}), ("POST", f"{of}/items", {"items": [user]})),
        *(("DELETE", f"{of}/items/{item}", None), ("DELETE", of, None)),
    ]
    session = (await made("/opencode/session", {"title": SECRET}))["id"]
    prompt = {"parts": [{"type": "text", "text": SECRET}]}
    message = (await made(f"/opencode/session/{session}/message", prompt))["info"]["id"]
    one, known = f"/opencode/session/{session}", {"messageID": message}
    calls += [
        *(("GET", one + path, None) for path in ("", "/message", f"/message/{message}")),
        *(
            ("POST", one + path, body)
            for path, body in (("/message", prompt), ("/prompt_async", prompt), ("/abort", {}))
        ),
        *(("POST", one + path, known) for path in ("/fork", "/revert", "/unrevert")),
        *(("PATCH", one, {"title": "mine"}), ("DELETE", one, None)),
    ]
    task = (await made("/maria/task", {"name": SECRET, "message": user}))["task"]["id"]
    one = f"/maria/task/{task}"
    calls += [
        *(
            ("GET", one + path, None)
            for path in ("", "/events", "/messages", "/queued_messages", "/status", "/system-prompt")
        ),
        *(("POST", one + path, {"message": user}) for path in ("/message", "/cancel")),
        *(("POST", f"{one}/external-event/user-message", {"message": "x"}), ("POST", f"{one}/system-prompt", "x")),
        ("GET", f"/maria/queued_messages?task={task}", None),
    ]
    session = (await made("/plue/session", {}))["session_id"]
    one = f"/plue/session/{session}/message"
    message = (await made(one, {"text": SECRET}))["message_id"]
    model = {"provider_id": "offline", "model_id": "echo"}
    begun = await http.post(f"{one}/{message}/response", json=model, headers=bearer("one"))
    updates = f"/plue/session/{session}/turn/{begun.headers['x-plue-turn']}/updates"
    calls += [
        *(("GET", path, None) for path in (one, f"{one}/{message}", updates)),
        *(("POST", one, {"text": "x"}), ("POST", f"{one}/{message}/response", model)),
        ("POST", f"/plue/session/{session}/abort", None),
    ]
    return calls


async def test_ids_of_another_tenant_are_unknown(http: httpx2.AsyncClient) -> None:
    """Whoever has them learns nothing and changes nothing, whatever he calls."""
    calls = await calls_with_ids(http)

    async def read() -> list[str]:
        shown = [path for method, path, _ in calls if method == "GET" and "events" not in path]
        return [(await http.get(path, headers=bearer("one"))).text for path in shown]

    before = await read()
    for headers, statuses in ((bearer("two"), {400, 404}), ({}, {401})):
        for method, path, body in calls:
            content = None if body is None else json.dumps(body)
            answer = await http.request(method, path, content=content, headers=headers)
            assert answer.status_code in statuses, (method, path, answer.text)
            assert SECRET not in answer.text
    assert sum(SECRET in text for text in before) > 10
    assert await read() == before
