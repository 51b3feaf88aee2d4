"""The sections of agents, and the permissions that follow those of all agents."""

from tests.support.fakes.config_file import load
from turnwire.core.settings import PermissionRule
from turnwire.domain.conversation.permissions import PermissionAction


def test_permissions_keep_the_order_of_the_file() -> None:
    """The last match counts, so the order says what holds."""
    config = load("""
        [permissions]
        "z*" = "deny"
        "a.*" = "ask"
        plain = "allow"
        [agents.careful.permissions]
        "*" = "ask"
        "fs.read" = "allow"
        [agents.brief]
        permissions = { "*" = "deny" }
    """)
    allow, ask, deny = PermissionAction.ALLOW, PermissionAction.ASK, PermissionAction.DENY
    settings = config.core_settings()
    assert settings.permissions == (
        PermissionRule("z*", deny),
        PermissionRule("a.*", ask),
        PermissionRule("plain", allow),
    )
    assert settings.agents["careful"].permissions == (PermissionRule("*", ask), PermissionRule("fs.read", allow))
    assert [settings.permission("careful", name) for name in ("zap", "fs.read", "plain")] == [ask, allow, ask]
    assert [settings.permission("brief", "plain"), settings.permission("", "zap")] == [deny, deny]
    assert settings.permission("", "other") is allow


def test_agents_may_have_fallback_models_of_their_own() -> None:
    """An empty list is none; left out, those of the server."""
    config = load("""
        [defaults]
        fallback_models = ["offline/lorem"]
        [agents.own]
        fallback_models = ["offline/echo", "offline/tools"]
        [agents.none]
        fallback_models = []
        [agents.server]
    """)
    settings = config.core_settings()
    found = {name: [model.model_id for model in settings.fallbacks(name)] for name in ("", "own", "none", "server")}
    assert found == {"": ["lorem"], "own": ["echo", "tools"], "none": [], "server": ["lorem"]}
