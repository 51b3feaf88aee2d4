"""Errors of model providers."""

from turnwire.domain.errors.base import DomainError


class ProviderError(DomainError):
    """A model provider gave no answer. After a message was accepted, this fails its turn and not the RPC."""

    reason = "PROVIDER_ERROR"


class ProviderRateLimited(ProviderError):
    """The provider's rate limit is reached; retry_after is from its header."""

    reason = "PROVIDER_RATE_LIMITED"


class ProviderUnavailable(ProviderError):
    """The provider could not be reached or is overloaded."""

    reason = "PROVIDER_UNAVAILABLE"


class ProviderTimeout(ProviderError):
    """The provider took too long."""

    reason = "PROVIDER_UNAVAILABLE"


class ProviderCredentialsRejected(ProviderError):
    """The provider does not accept our key, or none is configured."""

    reason = "PROVIDER_CREDENTIALS_REJECTED"


class ProviderRefusedRequest(ProviderError):
    """The provider rejected the request; a retry will not help."""

    reason = "PROVIDER_REQUEST_REFUSED"


class ProviderContextFull(ProviderError):
    """The conversation does not fit the model's context window."""

    reason = "PROVIDER_CONTEXT_FULL"


class ProviderStreamCut(ProviderError):
    """The stream ended without the API's end marker; the content received so far is kept."""

    reason = "PROVIDER_STREAM_CUT"


class ProviderStreamFailed(ProviderError):
    """The provider reported an error inside its stream; the content received so far is kept."""

    reason = "PROVIDER_STREAM_FAILED"


class ProviderAnswerOverLimit(ProviderStreamFailed):
    """The answer went over a limit of this server; the content received so far is kept.

    The same model is not asked again. Metadata `limit` (the key in the configuration) and `limitValue`.
    """

    @classmethod
    def of(cls, what: str, key: str, value: float) -> "ProviderAnswerOverLimit":
        """Creates the error.

        Args:
            what: What is wrong, behind "the answer of the provider".
            key: The limit, without its section.
            value: What it allows.
        """
        metadata = {"limit": f"limits.{key}", "limitValue": str(value)}
        return cls(f"the answer of the provider {what}: limits.{key} is {value}", metadata)
