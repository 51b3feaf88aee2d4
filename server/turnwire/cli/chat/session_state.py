"""What a session does now, as its events tell it."""

from collections.abc import Callable

from opencode.event.session_event_pb2 import SessionEvent
from opencode.question.question_pb2 import Question
from opencode.session.session_pb2 import SessionInfo
from opencode.tool.tool_pb2 import PermissionRequest


class SessionState:
    """One session: its running turn, what waits, and the requests to people that are open."""

    def __init__(self, clock: Callable[[], float], session_id: str = "") -> None:
        """Begins idle. `clock` gives seconds; "" is a session that its first message will create."""
        self._clock = clock
        self.session_id = session_id
        self.title = ""
        self.turn_id = ""
        """The running turn; "" for none."""
        self.turn_began_at = 0.0
        self.queued = 0
        """Messages that wait."""
        self.requests: dict[str, PermissionRequest | Question] = {}
        """Open permission requests and questions of tools by id, in the order in which they came."""
        self.deleted = False

    def begin_turn(self, turn_id: str) -> None:
        """Notes the running turn. Idempotent."""
        if turn_id != self.turn_id:
            self.turn_id = turn_id
            self.turn_began_at = self._clock()

    def take(self, session: SessionInfo) -> None:
        """Takes the session as it is."""
        self.title = session.title
        if session.HasField("active_turn_id"):
            self.begin_turn(session.active_turn_id)
        else:
            self._end_turn()
        self.queued = session.queued_messages

    def apply(self, event: SessionEvent) -> None:
        """Takes the next event."""
        match event.WhichOneof("kind"):
            case "session_snapshot":
                self.take(event.session_snapshot.session)
                self.queued = len(event.session_snapshot.queue)
            case "session_created":
                self.title = event.session_created.session.title
            case "session_updated":
                self.title = event.session_updated.session.title
            case "message_added":
                self.title = event.message_added.session_title or self.title
            case "session_deleted":
                self.deleted = True
                self._end_turn()
            case "turn_started":
                self.begin_turn(event.turn_started.turn.turn_id)
            case "turn_ended":
                # A turn that was dropped while it waited ends without having begun.
                if event.turn_ended.turn.turn_id == self.turn_id:
                    self._end_turn()
            case "queue_changed":
                self.queued = len(event.queue_changed.entries)
            case _:
                self._apply_request(event)

    def _apply_request(self, event: SessionEvent) -> None:
        match event.WhichOneof("kind"):
            case "permission_asked":
                self._ask(event.permission_asked.permission.id, event.permission_asked.permission)
            case "permission_snapshot":
                self._ask(event.permission_snapshot.permission.id, event.permission_snapshot.permission)
            case "permission_replied":
                self.requests.pop(event.permission_replied.permission_id, None)
            case "question_asked":
                self._ask(event.question_asked.question.question_id, event.question_asked.question)
            case "question_snapshot":
                self._ask(event.question_snapshot.question.question_id, event.question_snapshot.question)
            case "question_answered":
                self.requests.pop(event.question_answered.question_id, None)

    def _ask(self, request_id: str, request: PermissionRequest | Question) -> None:
        self.requests[request_id] = request
        self.begin_turn(request.turn_id)

    def _end_turn(self) -> None:
        self.turn_id = ""
        self.requests.clear()
