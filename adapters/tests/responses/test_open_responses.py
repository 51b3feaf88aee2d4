"""The acceptance tests of Open Responses, as they are, against a model that calls a tool whenever it is offered one.

TURNWIRE_TEST_OPEN_RESPONSES names a checkout of their repository in which `npm install --no-save zod@3 tsx ws` was run.
"""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.tests.conftest import serving
from adapters.tests.responses.test_programs import run
from tests.support.models.scripts import Call, Say, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import running_server

CHECKOUT = os.environ.get("TURNWIRE_TEST_OPEN_RESPONSES", "")
CASES = ("basic-response", "streaming-response", "system-prompt", "tool-calling", "image-input", "multi-turn")
"""All that go over HTTP, but for /responses/compact, which the adapter has not."""


def reply(request: RecordedRequest) -> ScriptedReply:
    """Calls the first tool, or says something."""
    tools = request.body.get("tools")
    if not tools:
        return answer("openai_chat", Say("Red, by the look of it."))
    return answer("openai_chat", Call(tools[0]["function"]["name"], '{"location": "San Francisco"}'))


@pytest.fixture
async def base(tmp_path: Path) -> AsyncIterator[str]:
    """The adapter before a server whose model is `reply`."""
    async with ProviderServer(reply) as provider:
        toml = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, serving(server.address, ["responses"]) as address:
            yield f"{address}/v1"


@pytest.mark.skipif(not CHECKOUT, reason="TURNWIRE_TEST_OPEN_RESPONSES names no checkout of Open Responses")
async def test_open_responses(base: str) -> None:
    """Every case of HTTP passes; those of WebSocket and of compacting are not claimed."""
    options = ("--base-url", base, "--api-key", "none", "--model", "mine/m", "--filter", ",".join(CASES), "--json")
    tsx = Path(CHECKOUT, "node_modules/.bin/tsx")
    lines = await run(tsx, "bin/compliance-test.ts", *options, cwd=Path(CHECKOUT))
    summary: dict[str, Any] = json.loads("\n".join(lines))["summary"]
    assert summary == {"passed": len(CASES), "failed": 0, "skipped": 0, "total": len(CASES)}
