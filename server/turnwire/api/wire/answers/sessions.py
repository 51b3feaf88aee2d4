"""Sessions as messages of the contract."""

from opencode.session import session_pb2
from turnwire.api.wire.answers.models import model_name
from turnwire.api.wire.answers.times import milliseconds, timestamp
from turnwire.api.wire.answers.tools import tool_definition
from turnwire.api.wire.answers.turns import options
from turnwire.domain.conversation.events import SessionView
from turnwire.domain.conversation.messages import Origin
from turnwire.domain.conversation.sessions import Budget, SessionSettings

_COMPACTION = {
    None: session_pb2.COMPACTION_MODE_UNSPECIFIED,
    True: session_pb2.COMPACTION_MODE_ON,
    False: session_pb2.COMPACTION_MODE_OFF,
}


def session(view: SessionView, *, with_tools: bool = False) -> session_pb2.SessionInfo:
    """Returns a session with its running turn and queue; its tools only when they are wanted, as they may be large."""
    value = view.session
    running = bool(view.active_turn_id)
    return session_pb2.SessionInfo(
        id=value.session_id,
        title=value.shown_title,
        directory=value.directory,
        time=session_pb2.SessionTime(created=milliseconds(value.created_at), updated=milliseconds(value.updated_at)),
        status=session_pb2.SESSION_STATUS_RUNNING if running else session_pb2.SESSION_STATUS_IDLE,
        settings=session_settings(value, with_tools=with_tools),
        head_sequence=value.head_sequence,
        revision=value.revision,
        active_turn_id=view.active_turn_id or None,
        queued_messages=len(view.queue),
        open_requests=view.open_requests,
        archive_time=None if value.archived_at is None else timestamp(value.archived_at),
        origin=_origin(value.origin),
        title_from_message=not value.title and bool(value.shown_title),
    )


def session_settings(value: SessionSettings, *, with_tools: bool) -> session_pb2.SessionSettings:
    """Returns the settings of a session."""
    return session_pb2.SessionSettings(
        title=value.title,
        directory=value.directory,
        model=None if value.model is None else model_name(value.model),
        agent=value.agent,
        tools=map(tool_definition, value.tools) if with_tools else None,
        compaction=_COMPACTION[value.compaction],
        budget=budget(value.budget),
        labels=value.labels,
        metadata_json=value.metadata_json,
        system=value.system,
        options=options(value.options),
    )


def _origin(value: Origin | None) -> session_pb2.SessionOrigin | None:
    if value is None:
        return None
    return session_pb2.SessionOrigin(system=value.system, session_id=value.session_id, message_id=value.message_id)


def budget(value: Budget) -> session_pb2.Budget | None:
    """Returns the limits of a session; None when it has none of its own."""
    if value == Budget():
        return None
    return session_pb2.Budget(max_tokens=value.max_tokens, max_cost_pico_usd=value.max_cost_pico_usd)
