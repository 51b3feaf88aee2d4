"""What the server promised: requests that it acknowledged, and what of it a restored backup still has."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class Named:
    """A request with a name, which counts once however often it is sent."""

    method: str
    """As SERVICE.METHOD of the client of the tests."""
    request: Any
    session_id: str
    """The session that it is about; "" when it makes one."""
    makes: str
    """The field of the answer that says what was made: a message, a turn or a session."""
    words: str = ""
    """What the message says, for a request that stores one."""
    refusals: frozenset[str] = frozenset()
    """Why it may be refused in a session that is there."""
    made: str = ""
    """What it made; "" while nobody knows: it was refused, or the answer was lost."""
    turn_id: str = ""
    """The turn that answers it; "" for none."""
    at: int = 0
    """When it was acknowledged."""

    def result(self, answer: Any) -> str:
        """Returns what an answer says that the request made."""
        for name in self.makes.split("."):
            answer = getattr(answer, name)
        return str(answer)


@dataclass(frozen=True)
class Result:
    """The acknowledged result of a tool call."""

    message_id: str
    output: str
    at: int


@dataclass(eq=False)
class Session:
    """One session, as the client knows it."""

    session_id: str
    made_at: int
    deleted_at: int | None = None
    edited: set[str] = field(default_factory=set)
    """Messages whose words were changed while they waited."""
    dropped: bool = False
    """Messages that waited may have been dropped."""
    results: dict[str, Result] = field(default_factory=dict)
    """By tool call."""

    @property
    def is_there(self) -> bool:
        """Whether the server has it."""
        return self.deleted_at is None


@dataclass(eq=False)
class Backup:
    """A copy of the database, and what is certain about it."""

    path: Path
    at: int
    before: dict[str, int]
    """Session -> its head before the copy was begun: so much is in the copy."""
    after: dict[str, int]
    """Session -> its head after the copy was made: what is behind is not in it."""


class Ledger:
    """All that was promised, and the count of things that have happened."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self.now = 0
        self.named: list[Named] = []
        self.sessions: dict[str, Session] = {}
        self.lost: set[str] = set()
        """Ids of what was made in a future that a restored backup does not have."""

    def tick(self) -> int:
        """Returns the number of the next thing that happens."""
        self.now += 1
        return self.now

    def there(self) -> list[str]:
        """Returns the ids of the sessions that the server has, in the order of their making."""
        return [session_id for session_id, session in self.sessions.items() if session.is_there]

    def know_session(self, session_id: str) -> Session:
        """Notes that the server has a session."""
        return self.sessions.setdefault(session_id, Session(session_id, self.now))

    def note(self, named: Named, answer: Any) -> None:
        """Notes that a request was acknowledged."""
        made = named.result(answer)
        assert made not in self.lost, f"{made} is of a future that is gone"
        if not named.made:
            named.made, named.at = made, self.now
            named.turn_id = answer.turn.turn_id if hasattr(answer, "turn") else getattr(answer, "turn_id", "")
        assert named.made == made, f"{named.request.request_id} made {named.made}, and now {made}"
        if named.makes in ("id", "session.id"):
            self.know_session(made)

    def note_deleted(self, session_id: str) -> None:
        """Notes that a session was deleted, and with it the names of requests that made it."""
        self.sessions[session_id].deleted_at = self.now
        for named in self.named:
            if named.made == session_id:
                named.made = ""

    def go_back(self, backup: Backup) -> None:
        """Forgets what was promised after a backup, which the server has again."""
        for session_id, session in list(self.sessions.items()):
            if session.made_at > backup.at:
                del self.sessions[session_id]
                self.lost.add(session_id)
                continue
            if session.deleted_at is not None and session.deleted_at > backup.at:
                session.deleted_at = None
            session.results = {call: one for call, one in session.results.items() if one.at <= backup.at}
        for named in self.named:
            if named.made and named.at > backup.at:
                self.lost.add(named.made)
                named.made = named.turn_id = ""
