"""What can be chosen: agents and providers as clients see them."""

from pathlib import Path

from opencode.agent.agent_pb2 import AgentInfo, PermissionRule
from opencode.model.model_pb2 import ModelCapabilities, ModelInfo
from opencode.tool.tool_pb2 import PERMISSION_ACTION_ALLOW, PERMISSION_ACTION_ASK, PERMISSION_ACTION_DENY
from tests.support.clients.conversation import (
    answer_to,
    displayed,
    model,
    model_name,
    new_session,
    talk,
    tool,
    words_of,
)
from tests.support.servers.running import connect, running_server

MICRO_USD = 10**6
"""In pico-USD."""


def choice(text: str) -> object:
    """Returns a model as the catalog names it."""
    provider_id, _, model_id = text.partition("/")
    return model_name(model_id, provider_id)


async def test_agents_tell_all_that_matters_before_they_are_chosen(tmp_path: Path) -> None:
    """The server's fallbacks and permissions hold for each; those of the agent replace or follow them."""
    toml = """
        [defaults]
        fallback_models = ["offline/lorem"]
        [permissions]
        "fs.*" = "ask"
        [agents.review]
        system = "You review code."
        model = "offline/tools"
        fallback_models = ["offline/echo", "offline/length"]
        description = "Finds mistakes"
        color = "#3366cc"
        tools = ["fs.*", "web.get"]
        [agents.review.permissions]
        "fs.read" = "allow"
        "*_all" = "deny"
        [agents.silent]
        tools = []
        fallback_models = []
    """
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        agents = list((await client.agents.ListAgents()).agents)
    asked = PermissionRule(pattern="fs.*", action=PERMISSION_ACTION_ASK)
    assert agents == [
        AgentInfo(
            name="default",
            description="Answers with the default model.",
            mode="primary",
            built_in=True,
            fallback_models=[choice("offline/lorem")],
            tools=["*"],
            permissions=[asked],
        ),
        AgentInfo(
            name="review",
            description="Finds mistakes",
            mode="primary",
            color="#3366cc",
            model=choice("offline/tools"),
            fallback_models=[choice("offline/echo"), choice("offline/length")],
            tools=["fs.*", "web.get"],
            permissions=[
                asked,
                PermissionRule(pattern="fs.read", action=PERMISSION_ACTION_ALLOW),
                PermissionRule(pattern="*_all", action=PERMISSION_ACTION_DENY),
            ],
            has_system_prompt=True,
        ),
        AgentInfo(name="silent", mode="primary", permissions=[asked]),
    ]


async def test_providers_tell_what_is_configured_and_what_the_price_list_knows(tmp_path: Path) -> None:
    """The configuration wins; unknown facts are absent, and no capability is not the same as nothing said."""
    toml = """
        [providers.local]
        kind = "openai_chat"
        base_url = "http://127.0.0.1:1/v1"
        models = ["plain"]
        [models."local/qwen3"]
        name = "Qwen"
        description = "Runs in the cellar"
        context_window_tokens = 32768
        max_output_tokens = 4096
        input_usd_per_million = 0.1
        output_usd_per_million = "0.4"
        cache_read_usd_per_million = 0
        capabilities = []
        [models."anthropic/claude-sonnet-4-5"]
        context_window_tokens = 1000
        cache_write_usd_per_million = 9
        [models."offline/echo"]
        context_window_tokens = 500
        output_usd_per_million = 3
    """
    environ = {"ANTHROPIC_API_KEY": "sk-secret"}
    async with running_server(tmp_path, toml, environ) as server, connect(server.address) as client:
        answer = await client.providers.GetProviders()
    assert "sk-secret" not in str(answer)
    assert dict(answer.defaults) == {"anthropic": "claude-sonnet-5-5", "local": "plain", "offline": "echo"}
    anthropic, local, offline = answer.providers
    assert dict(local.models) == {
        "plain": ModelInfo(id="plain", provider_id="local", name="plain"),
        "qwen3": ModelInfo(
            id="qwen3",
            provider_id="local",
            name="Qwen",
            description="Runs in the cellar",
            context_window_tokens=32768,
            max_output_tokens=4096,
            input_price_pico_usd_per_million=100_000 * MICRO_USD,
            output_price_pico_usd_per_million=400_000 * MICRO_USD,
            cache_read_price_pico_usd_per_million=0,
            capabilities=ModelCapabilities(),
        ),
    }
    sonnet = anthropic.models["claude-sonnet-4-5"]
    assert sonnet.description
    sonnet.description = ""
    assert sonnet == ModelInfo(
        id="claude-sonnet-4-5",
        provider_id="anthropic",
        name="Claude Sonnet 4.5",
        context_window_tokens=1000,
        input_price_pico_usd_per_million=3_000_000 * MICRO_USD,
        output_price_pico_usd_per_million=15_000_000 * MICRO_USD,
        cache_read_price_pico_usd_per_million=300_000 * MICRO_USD,
        cache_write_price_pico_usd_per_million=9_000_000 * MICRO_USD,
    )
    assert len(anthropic.models) > 5, "the vendor's other models are listed too"
    echo, lorem = offline.models["echo"], offline.models["lorem"]
    assert (echo.context_window_tokens, lorem.context_window_tokens) == (500, 128_000)
    assert (echo.output_price_pico_usd_per_million, lorem.HasField("output_price_pico_usd_per_million")) == (
        3_000_000 * MICRO_USD,
        False,
    )
    assert list(lorem.capabilities.names) == ["tools", "reasoning"]


async def test_answers_cost_what_the_configuration_says(tmp_path: Path) -> None:
    """Each bucket by its price; a price that is missing leaves the cost unknown."""
    toml = """
        [models."offline/echo"]
        input_usd_per_million = 0.25
        output_usd_per_million = "2"
        [models."offline/length"]
        input_usd_per_million = 1
    """
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        priced = await answer_to(client, await talk(client, "one two three four"))
        assert (priced.usage.input_tokens, priced.usage.output_tokens) == (4, 4)
        assert priced.cost_pico_usd == 4 * 250_000 + 4 * 2 * MICRO_USD
        half = await answer_to(client, await talk(client, "one two three four", model=model("length")))
        assert not half.HasField("cost_pico_usd")


async def test_denied_tools_are_unknown_to_the_model_and_said_to_be_denied(tmp_path: Path) -> None:
    """It is offered the others; a call of a denied one ends at once, and the turn goes on."""
    toml = '[agents.careful.permissions]\n"look_*" = "deny"\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = await new_session(client, agent="careful")
        accepted = await talk(client, "/tool look_up {}", session_id, tools=[tool("look_up")])
        assert "the tool 'look_up' is not permitted" in words_of(await answer_to(client, accepted))
        await talk(client, "call all", session_id, model=model("tools"), tools=[tool("look_up")])
        calls = [call for message in await displayed(client, session_id) for call in message.tool_calls]
        assert [(call.name, call.status) for call in calls] == [("look_up", "error")], (
            "the second turn had none to call"
        )
