"""Requests in the form of a provider's API, with the bytes of their files."""

from collections.abc import Mapping
from functools import partial

import msgspec

from turnwire.core.computing import compute
from turnwire.core.environment import Environment
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.provider import PreparedRequest, Provider, ProviderRequest


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
    async with environment.conversations.use(turn.tenant, turn.session_id) as conversation:
        writer = conversation.take_writer(provider)
        unwritten = writer.unwritten(request)
        if missing := unwritten.files - unsaved.keys():
            stored = await environment.store.of(turn.tenant).files(missing)
            request = msgspec.structs.replace(request, files={**stored, **unsaved})
        prepared = await compute(partial(writer.prepare, request), unwritten.messages)
        conversation.put_writer(provider, writer)
        return prepared
