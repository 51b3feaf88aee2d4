"""Requests for watches, checked for form."""

from opencode.event import event_pb2, session_event_pb2
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation.events import UNFILTERED_KINDS

KIND_NAMES = {
    number: "".join(word.capitalize() for word in name.removeprefix("EVENT_KIND_").split("_"))
    for name, number in session_event_pb2.EventKind.items()
    if number
}
"""Class names in `domain.conversation.events` of the durable kinds."""

MAX_TOKEN_CHARACTERS = 512
"""Maximum length of resume tokens, as the contract promises."""

MAX_KINDS = 100
"""Maximum kinds of a filter; fewer exist."""

_DELTA_MODES = event_pb2.DeltaMode.values()


def watch_request(request: event_pb2.WatchEventsRequest) -> WatchRequest:
    """Returns what to watch."""
    checks = Checks()
    if request.HasField("after_sequence") and not request.session_id:
        checks.fail("after_sequence", "is for a watch of one session: use resume_token or from_beginning")
    if request.HasField("from_beginning") and not request.from_beginning:
        checks.fail("from_beginning", "is false: set it to true or leave it out")
    if request.HasField("resume_token"):
        checks.required("resume_token", checks.at_most("resume_token", request.resume_token, MAX_TOKEN_CHARACTERS))
    kinds = request.kinds[:] if checks.few("kinds", request.kinds, MAX_KINDS, "kinds") else []
    for index, kind in enumerate(kinds):
        if kind not in KIND_NAMES:
            checks.fail(f"kinds[{index}]", "is not a kind of this server")
    if request.delta_mode not in _DELTA_MODES:
        checks.fail("delta_mode", "is not a mode of this server")
    checks.done()
    names = frozenset(KIND_NAMES[kind] for kind in kinds)
    return WatchRequest(
        session_id=request.session_id or None,
        after=request.after_sequence if request.WhichOneof("start") in ("after_sequence", "from_beginning") else None,
        resume_token=request.resume_token,
        include_deltas=request.delta_mode != event_pb2.DELTA_MODE_NONE,
        kinds=names | UNFILTERED_KINDS if names else None,
        fail_if_compacted=request.fail_if_compacted,
    )
