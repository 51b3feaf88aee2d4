"""Requests about sessions as inputs of the core, checked for form."""

from google.protobuf.field_mask_pb2 import FieldMask

from opencode.session import session_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.core.intake.requests import NamedRequest, SessionChange
from turnwire.core.use_cases.choices import check_directory
from turnwire.domain.conversation.limits import (
    LABEL_KEY,
    MAX_LABEL_CHARACTERS,
    MAX_LABELS,
    MAX_SESSION_SYSTEM_CHARACTERS,
)
from turnwire.domain.conversation.sessions import SessionFilter, SessionOrder, SessionSettings

_FIELDS = session_pb2.SessionSettings.DESCRIPTOR.fields_by_name
_WHOLE = ("model",)
"""Settings whose halves mean nothing."""
_COMPACTION = {
    session_pb2.COMPACTION_MODE_UNSPECIFIED: None,
    session_pb2.COMPACTION_MODE_ON: True,
    session_pb2.COMPACTION_MODE_OFF: False,
}
_ORDERS = {
    session_pb2.SESSION_ORDER_UNSPECIFIED: SessionOrder.UPDATED,
    session_pb2.SESSION_ORDER_UPDATED: SessionOrder.UPDATED,
    session_pb2.SESSION_ORDER_CREATED: SessionOrder.CREATED,
    session_pb2.SESSION_ORDER_TITLE: SessionOrder.TITLE,
}
MAX_MASK_PATHS = 100
"""Maximum paths of a mask; SessionSettings has a third of that."""

MAX_LISTED_LABELS = 8
"""Maximum labels of a filter; each costs a look at every session that passes the others."""


def create_session_request(request: session_pb2.CreateSessionRequest) -> SessionChange:
    """Returns the settings of a new session. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    sent = session_pb2.SessionSettings()
    sent.CopyFrom(request.settings)
    if request.title:
        checks.at_most("title", request.title, 1024)
        if sent.title not in ("", request.title):
            checks.fail("settings.title", "differs from title")
        sent.title = request.title[:1024]
    change = SessionChange(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("create_session", request),
        settings=_settings(checks.within("settings"), sent),
        paths=frozenset(_FIELDS),
    )
    checks.done()
    return change


def update_session_request(request: session_pb2.UpdateSessionRequest) -> SessionChange:
    """Returns the settings to change. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    settings, paths = _masked(checks, request.settings, request.update_mask, "update_mask")
    change = SessionChange(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("update_session", request),
        settings=settings,
        paths=paths,
        expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
    )
    checks.done()
    return change


def fork_session_request(request: session_pb2.ForkSessionRequest) -> SessionChange:
    """Returns how the settings of a copy differ. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    settings, paths = _masked(checks, request.settings, request.settings_mask, "settings_mask")
    change = SessionChange(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("fork_session", request),
        settings=settings,
        paths=paths,
    )
    checks.done()
    return change


def rewind_request(
    request: session_pb2.ClearSessionRequest | session_pb2.RevertSessionRequest | session_pb2.RestoreSessionRequest,
) -> NamedRequest:
    """Returns the name of a request to hide messages or to bring them back. Raises InvalidRequest, as the others do."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    if isinstance(request, session_pb2.RevertSessionRequest):
        checks.required("before_message_id", request.before_message_id)
    named = NamedRequest(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint(request.DESCRIPTOR.name, request),
    )
    checks.done()
    return named


def archive_request(request: session_pb2.ArchiveSessionRequest | session_pb2.UnarchiveSessionRequest) -> NamedRequest:
    """Returns the name of a request to archive a session or to undo that. Raises InvalidRequest, as the others do."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    named = NamedRequest(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint(request.DESCRIPTOR.name, request),
    )
    checks.done()
    return named


def session_filter(request: session_pb2.ListSessionsRequest) -> SessionFilter:
    """Returns which sessions to list. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.few("labels", request.labels, MAX_LISTED_LABELS, "labels")
    if request.order not in _ORDERS:
        checks.fail("order", "is not an order of this server")
    wanted = SessionFilter(
        archived=request.archived if request.HasField("archived") else None,
        directory=checks.at_most("directory", request.directory, 4096) if request.HasField("directory") else None,
        labels=_labels(checks, request),
        updated_since=checks.moment("min_update_time", request.min_update_time)
        if request.HasField("min_update_time")
        else None,
        title_text=checks.at_most("title_text", request.title_text, 256),
        order=_ORDERS.get(request.order, SessionOrder.UPDATED),
    )
    checks.done()
    return wanted


def update_directory_request(request: session_pb2.UpdateDirectoryRequest) -> SessionChange:
    """Returns the directory to set. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    settings = SessionSettings(directory=checks.at_most("directory", request.directory, 4096))
    checks.done()
    check_directory(settings.directory)
    return SessionChange(settings=settings, paths=frozenset(("directory",)), settings_field="")


def _masked(
    checks: Checks, sent: session_pb2.SessionSettings, mask: FieldMask, field: str
) -> tuple[SessionSettings, frozenset[str]]:
    """Returns the settings that a mask names, and their paths; `field` is the field of the mask."""
    paths = _paths(checks, sent, mask, field)
    masked = session_pb2.SessionSettings()
    FieldMask(paths=sorted(paths)).MergeMessage(sent, masked)
    return _settings(checks.within("settings"), masked), paths


def _paths(checks: Checks, sent: session_pb2.SessionSettings, mask: FieldMask, field: str) -> frozenset[str]:
    """Returns what changes: a path inside a setting is left out when the setting is named too.

    Every path is checked, also in addition to "*".
    """
    if not checks.few(field, mask.paths, MAX_MASK_PATHS, "paths"):
        return frozenset()
    named = frozenset(mask.paths)
    if not named:
        return frozenset(setting.name for setting, _ in sent.ListFields())
    known = set[str]()
    for path in sorted(named - {"*"}):
        if path.partition(".")[0] in _WHOLE and "." in path:
            checks.fail(field, f"names {path!r}, but that setting is replaced whole")
        elif FieldMask(paths=[path]).IsValidForDescriptor(session_pb2.SessionSettings.DESCRIPTOR):
            known.add(path)
        else:
            checks.fail(field, f"names {path!r}, which is not a path of SessionSettings")
    if "*" in named:
        return frozenset(_FIELDS)
    return frozenset(path for path in known if path.partition(".")[0] == path or path.partition(".")[0] not in known)


def _settings(checks: Checks, sent: session_pb2.SessionSettings) -> SessionSettings:
    if sent.compaction not in _COMPACTION:
        checks.fail("compaction", "is not a mode of this server")
    system = checks.at_most("system", sent.system, MAX_SESSION_SYSTEM_CHARACTERS)
    return SessionSettings(
        title=checks.at_most("title", sent.title, 1024),
        directory=checks.at_most("directory", sent.directory, 4096),
        model=fields.model(checks, sent.model) if sent.HasField("model") else None,
        agent=checks.at_most("agent", sent.agent, 256),
        tools=fields.session_tools(checks, sent.tools, "tools"),
        compaction=_COMPACTION.get(sent.compaction),
        budget=fields.budget(checks, sent.budget),
        labels=_labels(checks, sent),
        metadata_json=checks.json_object("metadata_json", sent.metadata_json),
        system=system if sent.HasField("system") else None,
        options=fields.options(checks, sent.options),
    )


def _labels(checks: Checks, sent: session_pb2.SessionSettings | session_pb2.ListSessionsRequest) -> dict[str, str]:
    if not checks.few("labels", sent.labels, MAX_LABELS, "labels"):
        return {}
    for key, value in sorted(sent.labels.items()):
        if not LABEL_KEY.fullmatch(key):
            checks.fail("labels", "have a key that is not 1 to 63 of the characters a-z 0-9 . _ - /")
        checks.at_most(f"labels[{key[:63]}]", value, MAX_LABEL_CHARACTERS)
    return dict(sent.labels)
