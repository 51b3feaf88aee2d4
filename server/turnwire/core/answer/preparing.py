"""Requests in the form of a provider's API, with the bytes of their files."""

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial

import msgspec

from turnwire.core.computing import compute
from turnwire.core.environment import Environment
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.provider import PreparedRequest, Provider, ProviderRequest, RequestWriter

_MAX_WRITERS = 2
"""Writers of requests that are kept of one session: for the provider of its model, and for that of a fallback."""


class Writers:
    """The writers of one session's requests, by provider: a part of what is kept of it (`core/keeping.py`)."""

    def __init__(self) -> None:
        """Starts with none."""
        self._writers: OrderedDict[str, tuple[Provider, RequestWriter]] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """What they remember."""
        return sum(writer.size_bytes for _, writer in self._writers.values())

    def of(self, provider: Provider) -> RequestWriter:
        """Returns the writer for a provider."""
        known = self._writers.get(provider.provider_id)
        if known is None or known[0] is not provider:
            known = self._writers[provider.provider_id] = provider, provider.writer()
        self._writers.move_to_end(provider.provider_id)
        if len(self._writers) > _MAX_WRITERS:
            self._writers.popitem(last=False)
        return known[1]


async def prepare_request(
    environment: Environment,
    turn: Turn,
    provider: Provider,
    *,
    request: ProviderRequest,
    model: ModelRef,
    unsaved: Mapping[str, bytes] = {},
) -> PreparedRequest:
    """Returns a request as a provider gets it. Costs what is new since the session's last one. Safe to cancel.

    Args:
        environment: Ports and settings.
        turn: The turn that asks.
        provider: The provider.
        request: The request, without the bytes of its files; its model is replaced.
        model: The model that is asked.
        unsaved: Files that are not stored, by hash.

    Raises:
        StorageError: a file could not be read.
    """
    capabilities = environment.providers.capabilities(model)
    request = msgspec.structs.replace(request, model_id=model.model_id, capabilities=capabilities, files=unsaved)
    async with environment.kept.use(turn.session_id) as kept:
        writers = kept.take(Writers)
        writer = writers.of(provider)
        unwritten = writer.unwritten(request)
        if missing := unwritten.files - unsaved.keys():
            stored = await environment.store.of(turn.tenant).files(missing)
            request = msgspec.structs.replace(request, files={**stored, **unsaved})
        prepared = await compute(partial(writer.prepare, request), unwritten.messages)
        kept.put(writers)
        return prepared
