"""The lines of the audit log."""

from structlog.testing import capture_logs

from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT, AnswerQuestionRequest
from opencode.session.session_pb2 import DeleteSessionRequest
from opencode.tool.tool_pb2 import PermissionResponse
from opencode.usage.usage_pb2 import QueryUsageRequest
from turnwire.api.audit import AUDITED, record_call
from turnwire.api.rights import LEAST_ROLE
from turnwire.domain.principal import Principal, Role

EVE = Principal(tenant="acme", subject="eve", role=Role.WRITER)
WHO = {"event": "audit", "log_level": "info", "tenant": "acme", "subject": "eve", "role": "writer"}


def test_audited_methods_are_methods() -> None:
    """A name that is misspelt would never be logged."""
    assert set(AUDITED) < set(LEAST_ROLE)


def test_an_answered_permission_is_recorded() -> None:
    """The line has who answered, and how; the person's words are content and stay out."""
    request = PermissionResponse(session_id="ses_1", permission_id="prm_1", response="always", reason="because")
    with capture_logs() as lines:
        record_call(EVE, "opencode.tool.PermissionService.RespondToPermission", request)
    facts = {"action": "permission_answered", "session_id": "ses_1", "permission_id": "prm_1", "response": "always"}
    assert lines == [WHO | facts]


def test_an_answered_question_is_recorded() -> None:
    """A cancelled call may have an action that nothing has checked: the line has its number."""
    with capture_logs() as lines:
        for action in (QUESTION_ACTION_ACCEPT, 99):
            request = AnswerQuestionRequest(session_id="ses_1", question_id="qst_1", action=action)  # type: ignore[arg-type]
            record_call(EVE, "opencode.question.QuestionService.AnswerQuestion", request, is_known=False)
    facts = {"action": "question_answered", "session_id": "ses_1", "question_id": "qst_1", "outcome": "unknown"}
    assert lines == [WHO | facts | {"response": response} for response in ("accept", "99")]


def test_a_deleted_session_is_recorded() -> None:
    """Text of the caller is cut, and left out if it cannot be printed."""
    with capture_logs() as lines:
        for session_id in ("ses_1", "x" * 100, "a\nb"):
            request = DeleteSessionRequest(session_id=session_id)
            record_call(EVE, "opencode.session.SessionService.DeleteSession", request)
    assert [line["session_id"] for line in lines] == ["ses_1", "x" * 64, ""]


def test_a_request_that_names_another_tenant_is_recorded() -> None:
    """Only an admin's call with one succeeds; the caller's own tenant is not another one."""
    ada = Principal(tenant="acme", subject="ada", role=Role.ADMIN)
    method = "opencode.usage.UsageService.QueryUsage"
    with capture_logs() as lines:
        for tenant in ("", "acme", "globex"):
            record_call(ada, method, QueryUsageRequest(tenant=tenant))
    assert [(line["action"], line["for_tenant"], line["method"]) for line in lines] == [
        ("acted_for_tenant", "globex", method)
    ]


def test_other_calls_leave_no_line() -> None:
    """They are in the log of calls."""
    with capture_logs() as lines:
        record_call(EVE, "opencode.session.SessionService.GetSession", DeleteSessionRequest(session_id="ses_1"))
    assert lines == []
