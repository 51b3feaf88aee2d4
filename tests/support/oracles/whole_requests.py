"""Model requests made anew from a whole conversation: the core, which only adds new messages, must make the same."""

from collections.abc import Sequence
from itertools import accumulate

from turnwire.core.conversation.assembly import Assembled, Assembly
from turnwire.core.conversation.prefix import (
    NO_MESSAGES,
    Prefix,
    follows_change,
    message_form,
    next_link,
    system_digest,
    tools_digest,
)
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest


def assemble(
    history: Sequence[Message],
    turn: Turn,
    system: str,
    tools: tuple[ToolDefinition, ...] | None = None,
    names_senders: bool = True,
) -> Assembled:
    """Returns the request for the next step of a turn, without the bytes of its files.

    Args:
        history: The session's messages in order, without queued ones.
        turn: The turn that runs.
        system: System prompt; "" for none.
        tools: What the model may call; None for the client's tools alone.
        names_senders: Whether user messages say who wrote them, when there is more than one sender.
    """
    return Assembly().assemble(history, 0, turn, system, tools, names_senders=names_senders)


def prefix_of(request: ProviderRequest) -> Prefix:
    """Returns the digests of a request. Each covers only what comes before it, so appending changes none of them."""
    return Prefix(
        system_hash=system_digest(request.system),
        tools_hash=tools_digest(request.tools),
        links=tuple(accumulate(map(message_form, request.messages), next_link, initial=NO_MESSAGES)),
    )


def prefix_changed(request: ProviderRequest, prefix: Prefix) -> frozenset[str]:
    """Returns the ids of answers that other content precedes now than when they were generated.

    A pure function of the request: compares the digest that was recorded with each answer with the digest of what
    precedes it now. It needs no memory of earlier comparisons. An answer from after a change recorded a digest that
    includes the change, so it keeps its reasoning in all later requests. An answer from before the change differs in
    all of them. When the change is undone, it is the other way round. So the same messages are sent in the same form
    from turn to turn.

    Messages without a recorded digest count as unchanged.
    """
    return frozenset(
        message.message_id
        for message, link in zip(request.messages, prefix.links, strict=False)
        if follows_change(message, prefix, link)
    )
