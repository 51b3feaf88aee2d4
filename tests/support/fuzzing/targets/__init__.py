"""All targets by name."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

Check = Callable[[bytes], object]


class Target(NamedTuple):
    """A target of the fuzzer: a function of bytes, and its first examples."""

    check: Check
    """Raises what is neither an answer nor a refusal that is declared."""
    examples: Callable[[], Iterable[bytes]]
    """Right inputs, from which the fuzzer begins."""


class _Place(NamedTuple):
    module: str
    guides: tuple[str, ...]
    """The packages whose branches guide the fuzzer, besides what is common to all."""


_CALLS = _Place("calls", ("turnwire.api", "turnwire.core.intake", "turnwire.core.use_cases", "turnwire.storage"))

_PLACES: Mapping[str, _Place] = {
    "sse": _Place("streams", ("turnwire.providers.answer",)),
    "chat_stream": _Place(
        "streams", ("turnwire.providers.openai_chat", "turnwire.providers.answer", "turnwire.core.answer")
    ),
    "responses_stream": _Place("streams", ("turnwire.providers.openai_responses", "turnwire.providers.answer")),
    "anthropic_stream": _Place("streams", ("turnwire.providers.anthropic", "turnwire.providers.answer")),
    "data_uri": _Place("values", ("turnwire.core.intake", "turnwire.domain.text")),
    "schema": _Place("values", ("turnwire.core.schemas",)),
    "resume_token": _Place("values", ("turnwire.core.watches",)),
    "search_query": _Place("values", ("turnwire.domain.searching",)),
    "web_token": _Place("values", ("turnwire.identity",)),
    "mcp_lines": _Place("mcp", ("turnwire.tools",)),
    "mcp_result": _Place("mcp", ("turnwire.tools",)),
    "archive": _Place("archives", ("turnwire.interop",)),
    "archive_lines": _Place("archives", ("turnwire.interop.turnwire_lines", "turnwire.domain.archive")),
    "protobuf_request": _CALLS,
    "json_request": _CALLS,
    "web_body": _Place("web", ("turnwire.api.web",)),
}

NAMES = tuple(_PLACES)


def guides(name: str) -> tuple[str, ...]:
    """Returns the packages whose branches guide the fuzzer."""
    return _PLACES[name].guides


def target(name: str) -> Target:
    """Returns a target; what it needs is imported now."""
    module = import_module(f"tests.support.fuzzing.targets.{_PLACES[name].module}")
    found: Target = module.TARGETS[name]
    return found
