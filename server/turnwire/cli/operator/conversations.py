"""`turnwire sessions`, `messages` and `search`: what a running server stores, over gRPC as any client reads it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
from rich.table import Column

from opencode.message.content_pb2 import MessageStatus, MessageType, Part, SessionMessage
from opencode.message.message_pb2 import ListMessagesRequest
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.search.search_pb2 import (
    SEARCH_ORDER_NEWEST,
    SEARCH_ORDER_RANK,
    SearchHit,
    SearchMessagesRequest,
    SearchMessagesResponse,
)
from opencode.search.search_pb2_grpc import SearchServiceStub
from opencode.session.session_pb2 import (
    DeleteSessionRequest,
    GetSessionRequest,
    GetSessionResponse,
    ListSessionsRequest,
    SessionInfo,
    SessionStatus,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire.cli.connection import Connection
from turnwire.cli.notes import result_outcome, unseen_note
from turnwire.cli.operator.calls import TIMEOUT_SECONDS, connected, paged, print_lines, word
from turnwire.cli.operator.output import print_error, print_json, print_line, print_marked, print_table
from turnwire.cli.visible_text import one_line

_COLUMNS = (
    Column("session", width=36),
    Column("updated (UTC)", width=16),
    Column("status", width=7),
    Column("title"),
)


def list_sessions(connection: Connection, limit: int | None, *, as_json: bool) -> int:
    """Prints sessions, most recently updated first, page by page. Returns the exit code, as all functions here do."""

    def run(channel: grpc.Channel) -> int:
        sessions = _sessions(SessionServiceStub(channel), limit)
        if as_json:
            print_lines(sessions)
        else:
            print_table(_COLUMNS, map(_row, sessions))
        return 0

    return connected(connection, run)


def show_session(connection: Connection, session_id: str, *, as_json: bool) -> int:
    """Prints one session with its settings and what it has used."""

    def run(channel: grpc.Channel) -> int:
        request = GetSessionRequest(session_id=session_id)
        answer = SessionServiceStub(channel).GetSession(request, timeout=TIMEOUT_SECONDS)
        if as_json:
            print_lines([answer])
        else:
            _print_session(answer)
        return 0

    return connected(connection, run)


def delete_session(
    connection: Connection, session_id: str, confirm: Callable[[str], bool] | None, *, as_json: bool
) -> int:
    """Deletes a session with everything in it.

    Args:
        connection: The server.
        session_id: The session.
        confirm: Asks a person; None deletes without a question.
        as_json: Whether to print JSON.

    Returns:
        The exit code: 0, or 1 when it was not deleted.
    """

    def run(channel: grpc.Channel) -> int:
        sessions = SessionServiceStub(channel)
        if confirm is not None:
            found = sessions.GetSession(GetSessionRequest(session_id=session_id), timeout=TIMEOUT_SECONDS).session
            if not confirm(f"Delete session {session_id} ({one_line(found.title) or 'no title'}) for ever?"):
                print_error("nothing was deleted")
                return 1
        sessions.DeleteSession(DeleteSessionRequest(session_id=session_id), timeout=TIMEOUT_SECONDS)
        if as_json:
            print_json({"deleted": session_id})
        else:
            print_line(f"deleted {session_id}")
        return 0

    return connected(connection, run)


def show_messages(
    connection: Connection, session_id: str, limit: int | None, *, newest_first: bool, as_json: bool
) -> int:
    """Prints the messages of a session page by page."""

    def run(channel: grpc.Channel) -> int:
        messages = _messages(MessageServiceStub(channel), session_id, limit, newest_first)
        if as_json:
            print_lines(messages)
        else:
            for message in messages:
                _print_message(message)
        return 0

    return connected(connection, run)


def search_messages(
    connection: Connection,
    query: str,
    session_id: str | None,
    limit: int | None,
    *,
    newest_first: bool,
    as_json: bool,
) -> int:
    """Prints what a query finds, the best or the newest first. A remark on standard error says what is not indexed yet.

    Returns:
        The exit code: 0, also without hits.
    """

    def run(channel: grpc.Channel) -> int:
        search, incomplete = SearchServiceStub(channel), False

        def page(size: int, token: str) -> SearchMessagesResponse:
            nonlocal incomplete
            request = SearchMessagesRequest(
                query=query,
                session_ids=[session_id] if session_id else [],
                order=SEARCH_ORDER_NEWEST if newest_first else SEARCH_ORDER_RANK,
                page_size=size,
                page_token=token,
            )
            answer: SearchMessagesResponse = search.SearchMessages(request, timeout=TIMEOUT_SECONDS)
            incomplete |= answer.incomplete
            return answer

        hits = paged(page, lambda answer: answer.hits, limit)
        if as_json:
            print_lines(hits)
        else:
            for hit in hits:
                _print_hit(hit)
        if incomplete:
            print_error("older messages are still being indexed; search again later")
        return 0

    return connected(connection, run)


def _sessions(sessions: SessionServiceStub, limit: int | None) -> Iterator[SessionInfo]:
    def page(size: int, token: str) -> Any:
        return sessions.ListSessions(ListSessionsRequest(page_size=size, page_token=token), timeout=TIMEOUT_SECONDS)

    return paged(page, lambda answer: answer.sessions, limit)


def _messages(
    messages: MessageServiceStub, session_id: str, limit: int | None, newest_first: bool
) -> Iterator[SessionMessage]:
    def page(size: int, token: str) -> Any:
        request = ListMessagesRequest(
            session_id=session_id, page_size=size, page_token=token, newest_first=newest_first
        )
        return messages.ListMessages(request, timeout=TIMEOUT_SECONDS)

    return paged(page, lambda answer: answer.messages, limit)


def _row(session: SessionInfo) -> tuple[str, ...]:
    return (
        session.id,
        _time(session.time.updated)[: len("2026-01-02 03:04")],
        word(SessionStatus, session.status, "SESSION_STATUS_"),
        session.title,
    )


def _print_session(answer: GetSessionResponse) -> None:
    session, settings = answer.session, answer.session.settings
    model = settings.model
    facts = {
        "session": session.id,
        "title": session.title,
        "directory": session.directory,
        "status": word(SessionStatus, session.status, "SESSION_STATUS_"),
        "created": f"{_time(session.time.created)} UTC",
        "updated": f"{_time(session.time.updated)} UTC",
        "model": f"{model.provider_id}/{model.model_id}" if settings.HasField("model") else "",
        "agent": settings.agent,
        "queued": str(session.queued_messages or ""),
        "waits for": str(session.open_requests or ""),
        "head sequence": str(session.head_sequence),
        "revision": str(session.revision),
        "used": ", ".join(f"{field.name.replace('_', ' ')} {value}" for field, value in answer.usage.ListFields()),
    }
    for name, value in facts.items():
        if value:
            print_line(f"{name:<14} {one_line(value)}")


def _print_hit(hit: SearchHit) -> None:
    when = f"{hit.create_time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S} UTC"
    facts = [word(MessageType, hit.type, "MESSAGE_TYPE_"), hit.session_id, hit.message_id, when, hit.session_title]
    print_line(one_line("  ".join(fact for fact in facts if fact)), "bold")
    print_marked([("  ", False), *((piece.text, piece.is_match) for piece in hit.snippet)])


def _print_message(message: SessionMessage) -> None:
    facts = [
        word(MessageType, message.type, "MESSAGE_TYPE_"),
        message.message_id,
        f"{message.create_time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S} UTC",
    ]
    status = word(MessageStatus, message.status, "MESSAGE_STATUS_")
    if status != "complete":
        facts.append(status)
    if message.HasField("model_run"):
        facts.append(f"{message.model_run.provider_id}/{message.model_run.model_requested}")
    if message.HasField("failure"):
        facts.append(f"{message.failure.reason}: {message.failure.message}")
    print_line(one_line("  ".join(facts)), "bold")
    for part in message.parts:
        for line in _text(part).splitlines() or [""]:
            print_line(f"  {line}")


def _text(part: Part) -> str:
    kind = part.WhichOneof("content") or ""
    call, file, result = part.tool_use, part.file, part.tool_result
    outcome = result_outcome(result)
    failed = f"failed: {call.error}" if call.HasField("error") else ""
    texts = {
        "text": part.text.text,
        "reasoning": f"(reasoning) {part.reasoning.text}",
        "refusal": f"(refusal) {part.refusal.text}",
        "tool_use": f"(call) {call.name} {call.input_json} -> {failed or call.output or call.status}",
        "tool_result": f"(result{outcome and ': '}{outcome}) {result.output}",
        "file": f"(file) {file.filename or file.sha256} {file.mime}{unseen_note(file)}",
    }
    return texts.get(kind, f"({kind or 'unknown'})")


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
