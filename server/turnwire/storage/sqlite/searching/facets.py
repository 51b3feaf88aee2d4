"""Facets: words of the index that say of which session, type and sender a message is, so that filters cost little.

A word of a text is `TENANT_word`, a facet `TENANT.kind...`: letters and digits cannot make one of the other.
"""

import hashlib
from collections.abc import Iterable, Sequence

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.searching.queries import Query, Term

_TYPES = {
    MessageType.USER: "u",
    MessageType.ASSISTANT: "a",
    MessageType.SYSTEM: "s",
    MessageType.HOST: "h",
    MessageType.TOOL_RESULT: "r",
}


def facets_of(tenant: int, session: int, type: MessageType, sender: str) -> str:
    """Returns the facets of a message, as words.

    Args:
        tenant: The short name of its tenant.
        session: The row of its session.
        type: Its type.
        sender: Its sender.
    """
    return f"{session_facet(tenant, session)} {type_facet(tenant, type)} {sender_facet(tenant, sender)}"


def session_facet(tenant: int, session: int) -> str:
    """Returns the facet of the messages of a session."""
    return f"{tenant}.s{session}"


def type_facet(tenant: int, type: MessageType) -> str:
    """Returns the facet of the messages of a type."""
    return f"{tenant}.t{_TYPES[type]}"


def sender_facet(tenant: int, sender: str) -> str:
    """Returns the facet of the messages of a sender, whose name can be any text."""
    return f"{tenant}.f{hashlib.blake2b(sender.encode(), digest_size=8).hexdigest()}"


def indexed_words(facets: str, words: Sequence[str]) -> str:
    """Returns the text of a row of the index: the facets, and each word behind the short name of the tenant."""
    before = f" {facets.partition('.')[0]}_"
    return facets + before + before.join(words) if words else facets


def expression(tenant: int, query: Query, facets: Iterable[Iterable[str]]) -> str:
    """Returns a query as FTS5 has it. Words have letters and digits only, so nothing needs an escape.

    Args:
        tenant: The short name of the tenant.
        query: What to look for.
        facets: A hit has one of each group.
    """
    groups = [" OR ".join(f'"{facet}"' for facet in group) for group in facets]
    groups += [" OR ".join(_term(tenant, term) for term in group) for group in query.groups]
    wanted = " AND ".join(f"({group})" for group in groups)
    if not query.without:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(_term(tenant, term) for term in query.without)})"


def _term(tenant: int, term: Term) -> str:
    phrase = " ".join(f"{tenant}_{word}" for word in term.words)
    return f'"{phrase}" *' if term.is_prefix else f'"{phrase}"'
