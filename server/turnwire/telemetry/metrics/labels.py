"""Values of labels, bounded: each value is a time series that the server and Prometheus keep."""

from collections.abc import Iterable

from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.text import one_line

OTHER = "other"
"""Stands for all values that have no series of their own."""

MAX_CHARS = 100
"""Maximum length of a value."""

MAX_MODELS = 50
"""Maximum models outside the configuration that get series: callers may name any model."""

MAX_TENANTS = 200
"""Maximum tenants that get series."""


class ModelLabels:
    """Provider and model as labels.

    A model outside the configuration gets series only once it has answered, so a caller who invents names creates no
    series.
    """

    def __init__(self, providers: Iterable[str], models: Iterable[ModelRef]) -> None:
        """Takes the configured providers and models."""
        self._providers = frozenset(providers)
        self._models = set(models)
        self._room = MAX_MODELS

    def of(self, model: ModelRef, *, has_answered: bool = False) -> tuple[str, str]:
        """Returns the labels of a model."""
        if model.provider_id not in self._providers:
            return OTHER, OTHER
        if model not in self._models:
            if not has_answered or self._room <= 0:
                return model.provider_id, OTHER
            self._room -= 1
            self._models.add(model)
        return model.provider_id, one_line(model.model_id, MAX_CHARS)


class TenantLabels:
    """Tenants as labels. The first `MAX_TENANTS` get series."""

    def __init__(self) -> None:
        """Starts without tenants."""
        self._known: set[str] = set()

    def of(self, tenant: str) -> str:
        """Returns the label of a tenant."""
        if tenant not in self._known:
            if len(self._known) >= MAX_TENANTS:
                return OTHER
            self._known.add(tenant)
        return one_line(tenant, MAX_CHARS)
