"""Reads agents and permissions from a configuration; docs/reference/configuration.md describes their tables."""

from collections.abc import Mapping
from typing import Any

from turnwire.config.document import Document
from turnwire.config.providers import ConfiguredModels
from turnwire.core.settings import Agent, PermissionRule
from turnwire.domain.conversation.permissions import PermissionAction


def read_agents(document: Document, models: ConfiguredModels) -> dict[str, Agent]:
    """Returns the agents by name. Raises ConfigError."""
    return {name: _agent(document, f"agents.{name}", table, models) for name, table in document.table("agents").items()}


def read_permissions(document: Document, key: str, table: Mapping[str, Any]) -> tuple[PermissionRule, ...]:
    """Returns the rules of a table in file order.

    Args:
        document: Creates the errors.
        key: Path of the table.
        table: Maps patterns to actions.

    Raises:
        ConfigError: a pattern is empty, or an action is unknown.
    """
    rules = []
    for pattern, action in table.items():
        rule_key = f'{key}."{pattern}"'
        if not pattern:
            raise document.error(rule_key, "is an empty pattern, which no tool matches")
        if isinstance(action, dict):
            raise document.error(rule_key, 'is a table: patterns with dots need quotes, as in "fs.read" = "ask"')
        if not isinstance(action, str) or action not in set(PermissionAction):
            raise document.error(rule_key, f"{action!r} is not one of {', '.join(PermissionAction)}")
        rules.append(PermissionRule(pattern, PermissionAction(action)))
    return tuple(rules)


def _agent(document: Document, key: str, table: object, models: ConfiguredModels) -> Agent:
    if key == "agents.":
        raise document.error('agents.""', 'is an agent without a name; sessions that name no agent use "default"')
    found = models.resolve(key, table)
    if isinstance(found, dict) and "permissions" in found:
        rules = document.convert(f"{key}.permissions", found["permissions"], dict[str, Any])
        found["permissions"] = read_permissions(document, f"{key}.permissions", rules)
    agent = document.convert(key, found, Agent)
    if "" in (agent.tools or ()):
        raise document.error(f"{key}.tools", "has an empty pattern, which no tool matches")
    return agent
