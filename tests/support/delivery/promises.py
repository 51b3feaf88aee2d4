"""Promises of the server: acknowledged requests, and those of them that a restored backup still has."""

from copy import deepcopy
from dataclasses import dataclass, field
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
    """Text of the message, for a request that stores one."""
    refusals: frozenset[str] = frozenset()
    """Why it may be refused in a session that is there."""
    made: str = ""
    """Id of what it made; "" while unknown: it was refused, or its answer was lost."""
    turn_id: str = ""
    """The turn that answers it; "" for none."""
    sent_at: int = 0
    """When it was first sent."""

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


@dataclass(eq=False)
class Session:
    """One session, as the client knows it."""

    session_id: str
    is_there: bool = True
    """Whether the server has it; False when it was deleted."""
    edited: set[str] = field(default_factory=set)
    """Messages whose words were changed while they waited."""
    dropped: bool = False
    """Messages that waited may have been dropped."""
    results: dict[str, Result] = field(default_factory=dict)
    """By tool call."""


@dataclass(frozen=True)
class Promises:
    """Promises that the server had given at one moment."""

    sessions: dict[str, Session]
    acknowledged: dict[Named, tuple[str, str]]
    """Request -> what it made, and the turn that answers it."""
    lost: frozenset[str]
    """Ids of what was made in a future that this server does not have."""


class Ledger:
    """All that was promised, and the count of things that have happened."""

    def __init__(self) -> None:
        self.now = 0
        self.named: list[Named] = []
        self.sessions: dict[str, Session] = {}
        self.lost: frozenset[str] = frozenset()
        """Ids of what was made in a future that a restored backup does not have."""
        self._made: dict[str, int] = {}
        """Id of all that was ever acknowledged -> when its request was first sent."""

    def tick(self) -> int:
        """Returns the number of the next thing that happens."""
        self.now += 1
        return self.now

    def there(self) -> list[str]:
        """Returns the ids of the sessions that the server has, in the order of their making."""
        return [session_id for session_id, session in self.sessions.items() if session.is_there]

    def know_session(self, session_id: str) -> Session:
        """Notes that the server has a session."""
        return self.sessions.setdefault(session_id, Session(session_id))

    def know(self, named: Named) -> None:
        """Notes that a request is sent, perhaps again."""
        if named not in self.named:
            self.named.append(named)
            named.sent_at = self.now

    def note(self, named: Named, answer: Any) -> None:
        """Notes that a request was acknowledged."""
        made = named.result(answer)
        assert made not in self.lost, f"{made} is of a future that is gone"
        if not named.made:
            named.made = made
            self._made[made] = named.sent_at
            named.turn_id = answer.turn.turn_id if hasattr(answer, "turn") else getattr(answer, "turn_id", "")
        assert named.made == made, f"{named.request.request_id} made {named.made}, and now {made}"
        if named.makes in ("id", "session.id"):
            self.know_session(made)

    def note_deleted(self, session_id: str) -> None:
        """Notes that a session was deleted, and with it the names of requests that made it."""
        self.sessions[session_id].is_there = False
        for named in self.named:
            if named.made == session_id:
                named.made = ""

    def promises(self) -> Promises:
        """Returns what is promised now."""
        acknowledged = {named: (named.made, named.turn_id) for named in self.named if named.made}
        return Promises(deepcopy(self.sessions), acknowledged, self.lost)

    def go_back(self, promises: Promises, at: int) -> None:
        """Takes what was promised when a backup was made, at this moment, for what is promised now.

        What was acknowledged only after that is lost, whichever server it was. A request that was sent before may be in
        the backup although its answer came later, or never.
        """
        self.sessions = deepcopy(promises.sessions)
        for named in self.named:
            named.made, named.turn_id = promises.acknowledged.get(named, ("", ""))
        there = {named.made for named in self.named} | set(self.sessions)
        self.lost = promises.lost | {made for made, sent_at in self._made.items() if sent_at > at and made not in there}
