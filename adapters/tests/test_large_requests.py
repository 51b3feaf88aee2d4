"""A request that is larger than the server takes is refused for good: 413, and not to be sent again."""

import httpx2
import pytest

from adapters.tests.conftest import Start
from turnwire_adapters.registry import HTTP_ADAPTERS

TEXT = "a" * (17 << 20)


@pytest.mark.parametrize(
    ("name", "begin", "path", "body"),
    [
        ("responses", "", "/responses", {"model": "offline/echo", "input": TEXT}),
        ("plue", "/session", "/session/{}/message", {"text": TEXT}),
        ("maria", "/task", "/task/{}/message", {"message": {"role": "user", "content": TEXT}}),
        ("opencode", "/session", "/session/{}/message", {"parts": [{"type": "text", "text": TEXT}]}),
    ],
)
async def test_it_is_too_large(
    turnwire: str, start: Start, name: str, begin: str, path: str, body: dict[str, object]
) -> None:
    """In the form of each system."""
    async with start(turnwire, [name]) as base:
        prefix = HTTP_ADAPTERS[name].prefix
        async with httpx2.AsyncClient(base_url=base + prefix.rstrip("/"), timeout=60) as http:
            session = ""
            if begin:
                made = (await http.post(begin, json={})).json()
                session = made.get("session_id") or made.get("id") or made["task"]["id"]
            answer = await http.post(path.format(session), json=body)
            assert answer.status_code == 413, answer.text[:300]
            assert "retry-after" not in answer.headers
            if name == "responses":
                assert answer.json()["error"]["type"] == "invalid_request_error"
            if name == "plue":
                assert answer.json()["code"] == -1
