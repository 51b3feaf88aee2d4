"""The audit log: one `audit` line for each change by an admin for others, or by a person's approval.

A line has the event `audit`, who acted (`tenant`, `subject`, `role`) and an `action`, and never any content;
docs/operate/security.md lists the actions. Tokens are created and revoked by a command on the server's machine, which
prints what it did; the server logs the ids of tokens that it sees come and go (`tokens_changed`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from opencode.question.question_pb2 import QuestionAction
from turnwire.domain.principal import Principal

log = structlog.get_logger()


def _answered_permission(request: Any) -> dict[str, str]:
    return {"permission_id": printable(request.permission_id), "response": printable(request.response)}


def _answered_question(request: Any) -> dict[str, str]:
    known = QuestionAction.DESCRIPTOR.values_by_number.get(request.action)
    # of a client that is newer, or wrong: no answer has checked it when the call was cancelled
    response = str(request.action) if known is None else known.name.removeprefix("QUESTION_ACTION_").lower()
    return {"question_id": printable(request.question_id), "response": response}


AUDITED: Mapping[str, tuple[str, Callable[[Any], dict[str, str]]]] = {
    "opencode.question.QuestionService.AnswerQuestion": ("question_answered", _answered_question),
    "opencode.session.SessionService.DeleteSession": ("session_deleted", lambda _request: {}),
    "opencode.tool.PermissionService.RespondToPermission": ("permission_answered", _answered_permission),
}
"""Maps a method to its action and the facts of its request."""


def record_call(principal: Principal, method: str, request: Any, *, is_known: bool = True) -> None:
    """Writes the lines of a call: of an audited method, and of a request that names another tenant.

    Args:
        principal: Who called.
        method: The full name of the method.
        request: The request.
        is_known: Whether the call succeeded; False when it ended before its outcome was known, as when its client left.
    """
    if (other_tenant := getattr(request, "tenant", "")) not in ("", principal.tenant):
        record_other_tenant(principal, printable(other_tenant), method)
    if audited := AUDITED.get(method):
        action, facts = audited
        outcome = {} if is_known else {"outcome": "unknown"}
        _write(principal, action, session_id=printable(request.session_id), **facts(request), **outcome)


def record_other_tenant(principal: Principal, other_tenant: str, method: str) -> None:
    """Writes the line of an admin's call for another tenant."""
    _write(principal, "acted_for_tenant", for_tenant=other_tenant, method=method)


def printable(text: str) -> str:
    """Returns the first characters of what a caller sent, or "" if it cannot be printed."""
    return text[:64] if text.isprintable() else ""


def _write(principal: Principal, action: str, **facts: str) -> None:
    log.info(
        "audit",
        action=action,
        tenant=principal.tenant,
        subject=principal.subject,
        role=principal.role.value,
        **facts,
    )
