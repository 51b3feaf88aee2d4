"""The words by which programs tell errors apart: the same in the contract's enum, in the server and in the document."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from docs.reference.field_numbers import messages
from opencode.error.error_reason_pb2 import ErrorReason
from turnwire.api.wire.status import status_of
from turnwire.domain import errors

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server/turnwire"
WORDS = set(ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
NEVER_SENT = {"STORAGE_SCHEMA_TOO_NEW", "PROVIDER_ERROR"}
"""One stops the start of the server, one is only a base."""


def error_kinds(base: type[errors.DomainError] = errors.DomainError) -> Iterator[type[errors.DomainError]]:
    """Yields a class of errors and all of its subclasses."""
    yield base
    for kind in base.__subclasses__():
        yield from error_kinds(kind)


@functools.cache
def failures_in_code() -> set[str]:
    """Returns the words of the failures that the server makes without an error."""
    found = set()
    for module in SERVER.rglob("*.py"):
        text = module.read_text()
        for node in ast.walk(ast.parse(text)) if "Failure(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failure":
                [reason, *_] = node.args
                assert isinstance(reason, ast.Constant), f"{module}: a failure's reason is a word, or use Failure.of"
                found.add(reason.value)
    return found


def tables() -> tuple[set[str], set[str]]:
    """Returns the words in the tables of docs/reference/errors.md: of errors of calls, and of failures."""
    calls, failures = (ROOT / "docs/reference/errors.md").read_text().split("\n## Failures of turns\n")
    rows = re.findall(r"^\| [A-Z_]+ \| (.*?) \|", calls, re.MULTILINE)
    return _words("".join(rows)), _words("".join(re.findall(r"^\| (`.*?) \|", failures, re.MULTILINE)))


def _words(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z_]+)`", text))


def test_enum_is_what_the_server_says() -> None:
    """Every word of an error and of a failure is a value, and every value is said."""
    said = {kind.reason for kind in error_kinds()} | failures_in_code()
    assert said - NEVER_SENT == WORDS


def test_document_names_each_word_in_the_right_table() -> None:
    """Those of calls, and those of turns; an error of a provider ends a turn, a few words are in both."""
    calls, failures = tables()
    provider = {kind.reason for kind in error_kinds(errors.ProviderError)} - NEVER_SENT
    assert calls | failures == WORDS
    assert failures >= provider | failures_in_code()
    assert calls >= WORDS - provider - failures_in_code()
    assert calls & failures == {"INTERNAL", "MODEL_UNKNOWN", "PROVIDER_CREDENTIALS_REJECTED", "QUOTA_EXCEEDED"}


def test_no_field_holds_the_enum() -> None:
    """The wire carries the word: a number that is not known would lose it."""
    fields = [field for message in messages() for field in message.fields if field.type == FieldDescriptor.TYPE_ENUM]
    assert fields
    assert [field.full_name for field in fields if field.enum_type.name == "ErrorReason"] == []


def test_status_carries_a_name_of_the_enum() -> None:
    """Generated clients compare with the constant's name."""
    [info, *_] = status_of(errors.SessionNotFound("ses_1")).details
    assert ErrorReason.Name(ErrorReason.SESSION_NOT_FOUND).encode() in info.value
