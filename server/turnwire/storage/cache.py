"""Session settings in memory: every message needs those of its session, and a query costs two thread switches."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from turnwire.domain.conversation.sessions import Session
from turnwire.ports.commit import Commit, NoteFirstWords, PutSession, RemoveSession

MAX_SESSIONS = 4096
"""Sessions in use at the same time on a busy server; each takes about a kilobyte."""


class SessionCache:
    """The most recently used sessions. Used on the event loop only.

    `_changes` counts the commits that changed any session's settings. A session that was read before such a commit may
    be out of date and is not kept.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._changes = 0

    def get(self, tenant: str, session_id: str) -> Session | None:
        """Returns the session of a tenant; None when it is not cached, or is the session of another tenant."""
        session = self._sessions.get(session_id)
        if session is None or session.tenant != tenant:
            return None
        self._sessions.move_to_end(session_id)
        return session

    def mark(self) -> int:
        """Returns a mark for `keep`. Take it before reading the session."""
        return self._changes

    def keep(self, session: Session, mark: int) -> None:
        """Keeps a session that was read after the mark was taken, unless any settings changed since."""
        if mark == self._changes:
            self._sessions[session.session_id] = session
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)

    def forget(self, is_left: Callable[[str], bool]) -> None:
        """Forgets sessions by their ids; other servers may change their settings from now on."""
        self._changes += 1
        for session_id in [session_id for session_id in self._sessions if is_left(session_id)]:
            del self._sessions[session_id]

    def forget_changed(self, commits: Sequence[Commit]) -> None:
        """Forgets the sessions whose settings these commits changed."""
        for commit in commits:
            if any(isinstance(change, PutSession | NoteFirstWords | RemoveSession) for change in commit.changes):
                self._changes += 1
                self._sessions.pop(commit.session_id, None)
