"""Choosing model and agent, and refusing what is not configured or cannot be used before anything is stored."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from turnwire.core.settings import CoreSettings
from turnwire.core.tools.schemas import problem_of_schema
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.sessions import DEFAULT_AGENT, Session
from turnwire.domain.conversation.turns import MAX_TOOLS, ToolDefinition
from turnwire.domain.errors import FieldViolation, InvalidRequest
from turnwire.ports.provider import Providers


@contextmanager
def settings_in(field: str) -> Iterator[None]:
    """Moves what is wrong with settings to the field of the request that holds them."""
    try:
        yield
    except InvalidRequest as error:
        raise error.within(field) from error


def choose_agent(settings: CoreSettings, asked: str | None, session: Session) -> str:
    """Returns the agent's name for a turn: the one asked for, else the session's.

    Raises:
        InvalidRequest: there is no such agent.
    """
    return check_agent(settings, asked if asked is not None else session.agent)


def choose_model(
    settings: CoreSettings, providers: Providers, asked: ModelRef | None, agent: str, session: Session
) -> ModelRef:
    """Returns the model for a turn: the one asked for, else the agent's, the session's or the server's.

    Raises:
        UnknownModel: there is no such provider, or the provider does not offer the model.
        ProviderCredentialsRejected: the provider's key is not configured.
    """
    model = asked or settings.agent(agent).model or session.model or settings.default_model
    providers.check(model)
    return model


def choose_tools(asked: tuple[ToolDefinition, ...], session: Session) -> tuple[ToolDefinition, ...]:
    """Returns the client's tools for a turn: those kept on the session, then those of the message.

    Of two with one name the message's counts, in the place of the session's: so the tools stay in their order.

    Raises:
        InvalidRequest: they are too many.
    """
    tools = tuple({tool.name: tool for tool in (*session.tools, *asked)}.values())
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest.of("tools", f"are more than {MAX_TOOLS} with those of the session", "TOO_MANY")
    return tools


def check_agent(settings: CoreSettings, name: str) -> str:
    """Returns the agent's name; "" for the default one. Raises InvalidRequest when there is no such agent."""
    if name in ("", DEFAULT_AGENT):
        return ""
    if name not in settings.agents:
        raise InvalidRequest.of("agent", f"there is no agent named {name!r}", "AGENT_UNKNOWN", agent=name)
    return name


def check_directory(directory: str, field: str = "directory") -> str:
    """Returns the directory. Raises InvalidRequest unless it is "" or an absolute path."""
    if directory and (not PurePosixPath(directory).is_absolute() or "\0" in directory):
        raise InvalidRequest.of(field, "is not an absolute path")
    return directory


async def check_schemas(tools: Iterable[ToolDefinition], field: str = "tools") -> None:
    """Checks the schemas of declared tools, which stand in a field of the request.

    Raises:
        InvalidRequest: names each tool whose schema is none.
    """
    problems = [await problem_of_schema(tool.input_schema_json) for tool in tools]
    violations = [
        FieldViolation(f"{field}[{index}].input_schema_json", problem, "BAD_SCHEMA")
        for index, problem in enumerate(problems)
        if problem
    ]
    if violations:
        raise InvalidRequest(*violations)
