"""How many questions and permission requests are open, so that nothing can flood a person, a session or a tenant."""

from collections import Counter

MAX_OPEN_OF_CALL = 8
"""Open questions of one call. More than one form at a time is rare, and nobody can look at many."""

MAX_OPEN_OF_SESSION = 32
"""Open questions of one session, which runs few calls at a time."""

MAX_OPEN_OF_TENANT = 256
"""Open questions of one tenant: as many as people can be expected to answer before they expire."""

MAX_PERMISSIONS_OF_TENANT = 1000
"""Open permission requests of one tenant. Watches of all sessions begin with all of them, each with up
to 64 KiB of arguments."""


class OpenQuestions:
    """Counts the open questions of the turns that run here. Used on the event loop only."""

    def __init__(self) -> None:
        """Counts from nothing."""
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._tenants: Counter[str] = Counter()

    def problem(self, tenant: str, session_id: str, more: int) -> str:
        """Returns why so many more may not be opened; "" when they may."""
        if self._sessions[tenant, session_id] + more > MAX_OPEN_OF_SESSION:
            return f"{MAX_OPEN_OF_SESSION} questions of the session are open"
        if self._tenants[tenant] + more > MAX_OPEN_OF_TENANT:
            return f"{MAX_OPEN_OF_TENANT} questions of the tenant are open"
        return ""

    def change(self, tenant: str, session_id: str, by: int) -> None:
        """Counts questions that were opened, or closed when `by` is negative."""
        self._sessions[tenant, session_id] += by
        self._tenants[tenant] += by
        if not self._sessions[tenant, session_id]:
            del self._sessions[tenant, session_id]
        if not self._tenants[tenant]:
            del self._tenants[tenant]


class OpenPermissions:
    """Counts the permission requests of the turns that run here, answered ones until their step has ended.

    Used on the event loop only.
    """

    def __init__(self) -> None:
        """Counts from nothing."""
        self._turns: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()

    def take(self, tenant: str, turn_id: str, wanted: int) -> int:
        """Counts requests of a step of a turn, in place of those of the step before. Returns how many it may have."""
        self.forget(turn_id)
        most = min(wanted, MAX_PERMISSIONS_OF_TENANT - self._tenants[tenant])
        if most > 0:
            self._turns[turn_id] = tenant, most
            self._tenants[tenant] += most
        return max(most, 0)

    def forget(self, turn_id: str) -> None:
        """Forgets the requests of a turn."""
        tenant, count = self._turns.pop(turn_id, ("", 0))
        self._tenants[tenant] -= count
        if not self._tenants[tenant]:
            del self._tenants[tenant]
