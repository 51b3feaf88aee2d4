"""Finds as many problems of a configuration at once as possible."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from turnwire.config.configuration import open_document, read_config
from turnwire.config.document import ConfigError
from turnwire.config.review.secrets import Masking

MAX_PROBLEMS = 100

_STAND_INS: Mapping[str, Mapping[str, str]] = {"providers": {"kind": "openai_chat"}, "models": {}}
"""Tables that replace invalid ones in sections that others refer to."""

_ENDS = frozenset(
    {("providers",), ("models",), ("tls",), ("auth",), ("auth", "methods"), ("auth", "jwt"), ("auth", "mtls")}
)
"""Keys on which others depend: without them the others would seem invalid too."""


class ConfigProblem(Struct, frozen=True):
    """One invalid value."""

    key: str
    """Its path in the file; "" when the file itself cannot be read."""
    source: str
    """The file, variable or option that sets it."""
    problem: str
    message: str
    """The complete message in one line."""


class Review(Struct, frozen=True, kw_only=True):
    """The result of a review."""

    file: str | None
    """The file that was read; None when there is none."""
    problems: tuple[ConfigProblem, ...]
    is_complete: bool
    """False when the last problem prevented the search for others."""


def review_config(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Review:
    """Reads a configuration as `load_config` does, removes invalid values, and continues. No text has a secret."""
    masking = Masking(environ)
    try:
        document = open_document(path, environ, options)
    except ConfigError as error:
        return Review(file=None if path is None else str(path), problems=(_problem(error, masking),), is_complete=False)
    found: dict[str, ConfigProblem] = {}
    stood_in: set[str] = set()
    is_complete = False
    while not is_complete and len(found) < MAX_PROBLEMS:
        try:
            read_config(document)
            is_complete = True
        except ConfigError as error:
            # a required key that was removed before is missing now, which is not a problem of its own
            found.setdefault(error.key, _problem(error, masking))
            removed = document.remove(error.key)
            if not removed or removed in _ENDS or removed[-1] in stood_in:
                break
            if len(removed) == 2 and (stand_in := _STAND_INS.get(removed[0])) is not None:
                document.table(removed[0])[removed[1]] = dict(stand_in)
                stood_in.add(removed[1])
    file = None if document.file is None else str(document.file)
    return Review(file=file, problems=tuple(found.values()), is_complete=is_complete)


def _problem(error: ConfigError, masking: Masking) -> ConfigProblem:
    return ConfigProblem(error.key, error.source, masking.text(error.problem), masking.text(str(error)))
