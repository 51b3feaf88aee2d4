"""The models and agents that can be chosen, as they are configured."""

import pytest

from tests.support.fakes.core import FakeServerTools, FakeStore, make_environment, server_tool
from tests.support.fakes.domain_values import make_session
from turnwire.core.settings import Agent, PermissionRule
from turnwire.core.use_cases.catalog import Catalog
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import BUILT_IN

ASK_FILES = PermissionRule("fs.*", PermissionAction.ASK)


async def test_the_catalog_says_what_happens_to_calls() -> None:
    """By the rules of the session's agent, else of the default one; tools that are denied are listed, too."""
    agents = {
        "default": Agent(permissions=(PermissionRule("web.*", PermissionAction.DENY),)),
        "careful": Agent(permissions=(PermissionRule("*", PermissionAction.ASK),), tools=("web.*", "fs.write")),
    }
    sessions = {"ses_1": make_session(), "ses_2": make_session("ses_2", agent="careful")}
    catalog = Catalog(
        make_environment(
            FakeStore(sessions_by_id=sessions),
            settings={"permissions": (ASK_FILES,), "agents": agents},
            tools=FakeServerTools(server_tool("fs.write"), server_tool("run"), server_tool("web.get")),
        ),
        {},
    )
    allow, ask, deny = PermissionAction.ALLOW, PermissionAction.ASK, PermissionAction.DENY
    assert {
        name: (await catalog.tools(BUILT_IN, name, size=9, token="")).permissions for name in ("", "ses_1", "ses_2")
    } == {
        "": {"fs.write": ask, "run": allow, "web.get": deny},
        "ses_1": {"fs.write": ask, "run": allow, "web.get": deny},
        "ses_2": {"fs.write": ask, "web.get": ask},
    }


async def test_tools_come_in_pages_of_one_listing() -> None:
    """By name, with all sources; a token is good for the session that it was made for alone."""
    tools = FakeServerTools(server_tool("c"), server_tool("a"), server_tool("b"))
    store = FakeStore(sessions_by_id={"ses_1": make_session()})
    catalog = Catalog(make_environment(store, tools=tools), {})
    first = await catalog.tools(BUILT_IN, "", size=2, token="")
    rest = await catalog.tools(BUILT_IN, "", size=2, token=first.next_token)
    assert [[tool.name for tool in page.tools] for page in (first, rest)] == [["a", "b"], ["c"]]
    assert (rest.next_token, rest.sources) == ("", first.sources)
    with pytest.raises(InvalidRequest, match="page_token"):
        await catalog.tools(BUILT_IN, "ses_1", size=2, token=first.next_token)


async def test_a_page_of_tools_ends_by_its_bytes() -> None:
    """Before it is larger than an answer may be: one MCP server may have two mebibytes of tools."""
    large = [server_tool(f"tool_{number:02}", f'{{"description": "{"ö" * 32_000}"}}') for number in range(70)]
    catalog = Catalog(make_environment(FakeStore(), tools=FakeServerTools(*large)), {})
    first = await catalog.tools(BUILT_IN, "", size=1000, token="")
    rest = await catalog.tools(BUILT_IN, "", size=1000, token=first.next_token)
    assert ([len(page.tools) for page in (first, rest)], rest.next_token) == ([52, 18], "")
