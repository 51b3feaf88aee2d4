"""Chooses model, agent and tools of a turn; rejects unknown and unusable ones before anything is stored."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import PurePosixPath

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import is_allowed_directory, on_file_thread
from turnwire.core.intake.requests import NewTurn, SessionChange
from turnwire.core.quotas import exceeded_spending
from turnwire.core.schemas import problems_of_schemas
from turnwire.core.settings import CoreSettings
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.sessions import DEFAULT_AGENT, Session
from turnwire.domain.conversation.turns import (
    MAX_TOOLS,
    GenerationOptions,
    ToolChoice,
    ToolDefinition,
    Turn,
    TurnStatus,
)
from turnwire.domain.errors import FieldViolation, InvalidRequest, MessageTooLarge
from turnwire.domain.principal import Principal
from turnwire.domain.text import utf8_bytes
from turnwire.ports.provider import Providers
from turnwire.ports.telemetry.tracing import current_span


@contextmanager
def settings_in(field: str) -> Iterator[None]:
    """Prefixes the fields of an InvalidRequest with the request field that holds the settings; "" for the request."""
    try:
        yield
    except InvalidRequest as error:
        if not field:
            raise
        raise error.within(field) from error


async def check_settings(environment: Environment, change: SessionChange, tenant: str, directory: str = "") -> None:
    """Checks the schemas and the directory in a change of settings; `changed_session` checks the rest.

    Args:
        environment: Ports and settings.
        change: The change.
        tenant: The owner of the session.
        directory: The session's present one, which may stay even if the configuration no longer allows it.

    Raises:
        InvalidRequest: a schema of tools or answers is wrong, or the session may not have the directory.
    """
    with settings_in(change.settings_field):
        if "tools" in change.paths:
            await check_tools(environment.settings, change.settings.tools)
        if "options" in change.paths:
            await check_response_format(environment.settings, change.settings.options)
        if "directory" in change.paths and change.settings.directory != directory:
            await check_allowed_directory(change.settings.directory, environment.settings, tenant)


def changed_session(environment: Environment, session: Session, change: SessionChange) -> Session:
    """Returns the session with the new settings.

    Raises:
        InvalidRequest: there is no such agent or model.
        ProviderCredentialsRejected: the key of the model's provider is not configured.
    """
    changed = change.apply_to(session)
    with settings_in(change.settings_field):
        if "model" in change.paths and changed.model is not None:
            environment.providers.check(changed.model)
        if "agent" in change.paths:
            changed = msgspec.structs.replace(changed, agent=check_agent(environment.settings, changed.agent))
    return changed


def check_spending(environment: Environment, tenant: str) -> None:
    """Rejects a turn that no model may answer. Raises QuotaExceeded."""
    if exceeded := exceeded_spending(environment, tenant):
        raise exceeded


def choose_turn(
    environment: Environment,
    principal: Principal,
    session: Session,
    answer: NewTurn,
    *,
    message_id: str,
    now: datetime,
) -> Turn:
    """Returns a new turn for a message; it is QUEUED until it is accepted.

    Raises:
        InvalidRequest: the model, the agent, the tools or an option of the generation cannot be used.
        ProviderCredentialsRejected: the key of the model's provider is not configured.
    """
    agent = choose_agent(environment.settings, answer.agent, session)
    model = choose_model(environment.settings, environment.providers, answer.model, agent, session)
    options, tools = answer.options.over(session.options), choose_tools(answer.tools, session)
    environment.providers.check_options(model, options)
    _check_tool_choice(options.tool_choice, tools)
    return Turn(
        turn_id=environment.new_id("trn"),
        session_id=session.session_id,
        tenant=session.tenant,
        subject=principal.subject,
        user_message_id=message_id,
        status=TurnStatus.QUEUED,
        created_at=now,
        model=model,
        agent=agent,
        system=answer.system if answer.system is not None else session.system,
        options=options,
        tools=tools,
        traceparent=current_span().traceparent,
    )


def choose_agent(settings: CoreSettings, asked: str | None, session: Session) -> str:
    """Returns the name of a turn's agent: the requested one, else the session's.

    Raises:
        InvalidRequest: there is no such agent.
    """
    return check_agent(settings, asked if asked is not None else session.agent)


def choose_model(
    settings: CoreSettings, providers: Providers, asked: ModelRef | None, agent: str, session: Session
) -> ModelRef:
    """Returns the model of a turn: the requested one, else the agent's, the session's or the server's.

    Raises:
        UnknownModel: there is no such provider, or the provider does not offer the model.
        ProviderCredentialsRejected: the provider's key is not configured.
    """
    model = asked or settings.agent(agent).model or session.model or settings.default_model
    providers.check(model)
    return model


def choose_tools(asked: tuple[ToolDefinition, ...], session: Session) -> tuple[ToolDefinition, ...]:
    """Returns the client's tools for a turn: the session's tools, then the message's.

    A tool of the message replaces one of the session with the same name and keeps its position in the order.

    Raises:
        InvalidRequest: together they are more than MAX_TOOLS.
    """
    tools = tuple({tool.name: tool for tool in (*session.tools, *asked)}.values())
    if len(tools) > MAX_TOOLS:
        text = f"has more than {MAX_TOOLS} tools, including the session's"
        raise InvalidRequest.of("tools", text, "TOO_MANY", limitValue=str(MAX_TOOLS))
    return tools


def check_agent(settings: CoreSettings, name: str) -> str:
    """Returns the agent's name; "" for the default agent. Raises InvalidRequest when there is no such agent."""
    if name in ("", DEFAULT_AGENT):
        return ""
    if name not in settings.agents:
        raise InvalidRequest.of("agent", f"unknown agent {name!r}", "AGENT_UNKNOWN", agent=name)
    return name


def check_directory(directory: str) -> str:
    """Returns the directory. Raises InvalidRequest unless it is "" or an absolute path."""
    if directory and (not PurePosixPath(directory).is_absolute() or "\0" in directory):
        raise InvalidRequest.of("directory", "is not an absolute path")
    return directory


async def check_allowed_directory(directory: str, settings: CoreSettings, tenant: str) -> None:
    """Checks that a session may have a directory; it need not exist.

    Args:
        directory: As the caller gave it; "" for none.
        settings: Have the folders whose files the session may name.
        tenant: The owner of the session.

    Raises:
        InvalidRequest: it is not an absolute path, or not below a root.
    """
    if not check_directory(directory):
        return
    roots = settings.roots(tenant)
    if not await on_file_thread(is_allowed_directory, directory, roots, settings.written_roots):
        problem = (
            "is not below a folder that the server may read"
            if roots
            else "is set, and no files of the server may be read"
        )
        raise InvalidRequest.of("directory", problem, "PATH_NOT_ALLOWED")


def _check_tool_choice(choice: ToolChoice | None, tools: Sequence[ToolDefinition]) -> None:
    """Rejects the choice of a client's tool that does not exist. The server's tools may change: a step checks for them.

    Raises:
        InvalidRequest: there is no such tool.
    """
    if choice is None or not choice.tool_name or "." in choice.tool_name:
        return
    if choice.tool_name not in {tool.name for tool in tools}:
        problem = f"{choice.tool_name!r} is not a tool of this turn"
        raise InvalidRequest(FieldViolation("options.tool_choice.tool_name", problem, "INVALID"))


async def check_answer(settings: CoreSettings, answer: NewTurn, field: str = "") -> None:
    """Checks the schemas in the settings with which a message is to be answered.

    Args:
        settings: Have the limits.
        answer: The settings.
        field: The path of the field that has them, with a dot at its end; "" for the request itself.

    Raises:
        InvalidRequest: a schema is not valid.
        MessageTooLarge: a schema, or all tools together, are over the limit.
    """
    await check_tools(settings, answer.tools, f"{field}tools")
    await check_response_format(settings, answer.options, field)


async def check_response_format(settings: CoreSettings, options: GenerationOptions, field: str = "") -> None:
    """Checks the schema of answers. Arguments and errors as `check_answer`."""
    form = options.response_format
    if form is None or not form.schema_json:
        return
    place, most = f"{field}options.response_format.schema_json", settings.limits.max_tools_bytes
    if (size := utf8_bytes(form.schema_json)) > most:
        raise MessageTooLarge.over("limits.max_tools_bytes", most, place, size)
    [problem] = await problems_of_schemas([form.schema_json])
    if problem:
        raise InvalidRequest(FieldViolation(place, problem, "BAD_SCHEMA"))


async def check_tools(settings: CoreSettings, tools: Sequence[ToolDefinition], field: str = "tools") -> None:
    """Checks the tools that a request declares.

    Args:
        settings: Have the limit.
        tools: The tools.
        field: Path of the tools in the request, for errors.

    Raises:
        InvalidRequest: schemas are not valid; has one violation for each of them.
        MessageTooLarge: together they are over the limit.
    """
    limits = settings.limits
    size = sum(tool.size_bytes for tool in tools)
    if size > limits.max_tools_bytes:
        raise MessageTooLarge.over("limits.max_tools_bytes", limits.max_tools_bytes, field, size)
    problems = await problems_of_schemas([tool.input_schema_json for tool in tools])
    violations = [
        FieldViolation(f"{field}[{index}].input_schema_json", problem, "BAD_SCHEMA")
        for index, problem in enumerate(problems)
        if problem
    ]
    if violations:
        raise InvalidRequest(*violations)
