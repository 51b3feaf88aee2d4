"""The agents and permissions of a configuration; `turnwire.config` describes their tables."""

from collections.abc import Mapping
from typing import Any

from turnwire.config.document import Document
from turnwire.config.providers import ConfiguredModels
from turnwire.config.sections import AgentSection
from turnwire.core.settings import Agent, PermissionRule
from turnwire.domain.conversation.permissions import PermissionAction


def read_agents(document: Document, models: ConfiguredModels) -> dict[str, Agent]:
    """Returns the agents by name. Raises ConfigError."""
    return {name: _agent(document, f"agents.{name}", table, models) for name, table in document.table("agents").items()}


def read_permissions(document: Document, key: str, table: Mapping[str, Any]) -> tuple[PermissionRule, ...]:
    """Returns the rules of a table in the file's order.

    Args:
        document: Where errors are told.
        key: Path of the table.
        table: Pattern to action.

    Raises:
        ConfigError: a pattern is empty, or an action is none.
    """
    rules = []
    for pattern, action in table.items():
        rule_key = f'{key}."{pattern}"'
        if not pattern:
            raise document.error(rule_key, "is an empty pattern, which no tool matches")
        if isinstance(action, dict):
            raise document.error(rule_key, 'is a table: patterns with dots need quotes, as in "fs.read" = "ask"')
        if not isinstance(action, str) or action not in set(PermissionAction):
            raise document.error(rule_key, f"{action!r} is none of {', '.join(PermissionAction)}")
        rules.append(PermissionRule(pattern, PermissionAction(action)))
    return tuple(rules)


def _agent(document: Document, key: str, table: object, models: ConfiguredModels) -> Agent:
    if key == "agents.":
        raise document.error('agents.""', 'is an agent without a name; the one of sessions that name none is "default"')
    section = document.converted(key, table, AgentSection)
    if "" in (section.tools or ()):
        raise document.error(f"{key}.tools", "has an empty pattern, which no tool matches")
    fallbacks = section.fallback_models
    return Agent(
        system=section.system,
        model=models.ref(f"{key}.model", section.model) if section.model else None,
        description=section.description,
        color=section.color,
        tools=section.tools,
        permissions=read_permissions(document, f"{key}.permissions", section.permissions),
        fallback_models=None if fallbacks is None else models.refs(f"{key}.fallback_models", fallbacks),
    )
