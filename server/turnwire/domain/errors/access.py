"""Errors of callers: who is not let in, and who has to wait."""

from datetime import timedelta
from typing import ClassVar, Self

from turnwire.domain.errors.base import DomainError, limit_facts


class Unauthenticated(DomainError):
    """The caller's credentials are missing or not valid. Callers cannot see which check failed."""

    reason = "UNAUTHENTICATED"

    def __init__(self, cause: str, *, missing: bool = False) -> None:
        """Creates the error, which is the same for all wrong credentials.

        Args:
            cause: Which check failed, for the log; never part of the credentials.
            missing: Whether the caller presented no credentials at all.
        """
        text = "this call needs credentials" if missing else "the credentials are not valid"
        super().__init__(f"{text}; GetServerInfo lists the ways to sign in")
        self.cause = cause


class PermissionDenied(DomainError):
    """The caller is known and its role does not allow the call; metadata requiredRole and role."""

    reason = "PERMISSION_DENIED"

    @classmethod
    def of(cls, text: str, role: str, required: str) -> "PermissionDenied":
        """Creates the error of a caller with a role, for what needs another one."""
        return cls(f"{text}, and the caller is a {role}", {"role": role, "requiredRole": required})


class LimitReached(DomainError):
    """A limit of this server is reached; a later retry may succeed. Metadata limit and limitValue."""

    reason = "CONCURRENCY_LIMIT"
    subject: ClassVar[str] = "server"

    @classmethod
    def of(cls, limit: str, value: float, text: str, retry_after: timedelta | None = None, **facts: str) -> Self:
        """Creates the error.

        Args:
            limit: The name of the limit in docs/limits.md: a key such as "limits.max_watchers", or a constant.
            value: What the limit is.
            text: A sentence for people.
            retry_after: When it may be allowed again; None where nobody knows: a second is sent then.
            facts: More metadata.
        """
        return cls(text, {**limit_facts(limit, value), **facts}, retry_after)


class TooManyCalls(LimitReached):
    """Too many calls run, or what they have sent is too much; metadata limit and limitValue."""

    subject = "calls"

    @classmethod
    def at(cls, limit: str, value: int, retry_after: timedelta) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, value, f"the server has too many calls: {limit} is {value}", retry_after)


class RequestTooSlow(LimitReached):
    """A request did not arrive in time; metadata limit and limitValue."""

    subject = "request"

    @classmethod
    def at(cls, limit: str, seconds: float) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, seconds, f"the request did not arrive within {seconds:g} seconds")


class MemoryShort(LimitReached):
    """The server has no memory for new work; metadata limit and limitValue. What runs goes on."""

    subject = "memory"

    @classmethod
    def at(cls, limit: str, value: int, retry_after: timedelta) -> Self:
        """Creates the error of a limit, by its name and its value."""
        return cls.of(limit, value, "the server is short of memory and takes no new work", retry_after)


class TooManyTurns(LimitReached):
    """Too many turns run or wait."""

    subject = "turns"


class TooManyWatchers(LimitReached):
    """Too many event streams are open."""

    subject = "watchers"


class TooManySignIns(LimitReached):
    """Too many credentials are being checked."""

    subject = "sign-ins"


class TooManyUploads(LimitReached):
    """The tenant has as many uploads as it may have at the same time; metadata also used."""

    subject = "uploads"


class TooManyTransfers(LimitReached):
    """Too many exports or imports run."""

    subject = "transfers"


class TooManySearches(LimitReached):
    """Too many searches run or wait."""

    subject = "searches"


class SearchTooCostly(DomainError):
    """A search took too long and was ended; metadata maxSeconds, limit and limitValue."""

    reason = "SEARCH_TOO_COSTLY"

    def __init__(self, max_seconds: float) -> None:
        """Takes the limit."""
        text = f"the search took more than {max_seconds:g} seconds: use more or rarer words, or a filter"
        super().__init__(text, {"maxSeconds": f"{max_seconds:g}", **limit_facts("MAX_SECONDS", max_seconds)})


class QuotaExceeded(DomainError):
    """A quota of the caller's tenant is used up; metadata quota, limit and used. Nothing was stored."""

    reason = "QUOTA_EXCEEDED"

    def __init__(
        self, message: str, tenant: str, *, quota: str, limit: int, used: int, retry_after: timedelta | None = None
    ) -> None:
        """Args:
        message: A sentence for people.
        tenant: Whose quota it is.
        quota: Its name.
        limit: The most that the tenant may have or use.
        used: What it has or has used; may be more.
        retry_after: When it is allowed again; None when waiting alone does not help.
        """
        super().__init__(message, {"quota": quota, "limit": str(limit), "used": str(used)}, retry_after)
        self.tenant = tenant


class ShuttingDown(DomainError):
    """The server is stopping."""

    reason = "SERVER_SHUTTING_DOWN"

    def __init__(self) -> None:
        """Suggests a retry after a second: a restart takes about that long."""
        super().__init__("the server is shutting down", retry_after=timedelta(seconds=1))
