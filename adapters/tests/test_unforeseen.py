"""Errors that nobody foresaw are answered in an adapter's own form, with the id under which the log has it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from turnwire_adapters.registry import HTTP_ADAPTERS
from turnwire_adapters.serve import application
from turnwire_adapters.settings import ServeSettings, Target
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client


class _Broken(Upstream):
    """Fails for a reason that no adapter knows of."""

    @contextlib.asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[Client]:
        raise ZeroDivisionError(f"unforeseen with {len(token)} characters")
        yield


@pytest.mark.parametrize(
    ("name", "path", "form"),
    [
        ("maria", "/maria/tasks", lambda words: {"error": {"code": -1, "message": words}}),
        ("maria", "/maria/events", lambda words: {"error": {"code": -1, "message": words}}),
        (
            "plue",
            "/plue/session/a/message",
            lambda words: {"code": -99, "error": {"name": "UNKNOWN", "message": words}},
        ),
        ("opencode", "/opencode/session", lambda words: {"name": "UnknownError", "data": {"message": words}}),
        ("opencode", "/opencode/event", lambda words: {"name": "UnknownError", "data": {"message": words}}),
    ],
)
async def test_a_failure_has_the_form_of_the_adapter(name: str, path: str, form: Any) -> None:
    """And the log has the reason."""
    settings = ServeSettings({name: HTTP_ADAPTERS[name].prefix}, "127.0.0.1", 0, Target())
    transport = httpx2.ASGITransport(app=application(settings, _Broken(Target())))
    with capture_logs() as logs:
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            answer = await http.get(path)
    request_id = answer.headers["x-request-id"]
    assert answer.status_code == 500
    assert answer.json() == form(f"The server had an error. Request {request_id}")
    [failed] = [line for line in logs if line["event"] == "request failed"]
    assert failed["request_id"] == request_id
