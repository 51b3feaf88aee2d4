"""The form of questions, and the check that an answer fits it.

A form is the restricted JSON Schema of MCP's elicitation: a flat object of texts, numbers, yes or no, and choices, so
that every client can show it. Questions of tools are not trusted: everything has a limit.
"""

import ipaddress
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnwire.core.schemas import problem_of_value, problems_of_schemas
from turnwire.domain.conversation.questions import LinkForm, Question, SchemaForm
from turnwire.ports.tools import NewQuestion

MAX_PROMPT_CHARS = 4096
"""Maximum length of a question's text: some pages of a terminal."""

MAX_SCHEMA_BYTES = 16 * 1024
"""Maximum size of a form's schema, which is part of an event: 50 fields with descriptions fit."""

MAX_FIELDS = 50
"""Maximum fields of one form."""

MAX_CHOICES = 500
"""Maximum choices of one field: countries and time zones fit."""

MAX_URL_CHARS = 2048
"""Maximum length of a link that a person is to open; all browsers accept it."""

MAX_CONTENT_BYTES = 64 * 1024
"""Maximum size of the content that a person fills in."""

_OF_FORMS = frozenset({"$schema", "type", "properties", "required", "title", "description", "additionalProperties"})

_OF_FIELDS = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "enum", "enumNames", "oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset[str](),
    "array": frozenset({"minItems", "maxItems", "uniqueItems", "items"}),
}
"""Keywords allowed for a field of each type, besides type, title, description and default."""


async def problem_of_question(new: NewQuestion) -> str:
    """Returns why a question cannot be asked, for its author; "" when it can."""
    if not new.prompt.strip():
        return "its message is empty"
    if len(new.prompt) > MAX_PROMPT_CHARS:
        return f"its message is longer than {MAX_PROMPT_CHARS} characters"
    if isinstance(new.form, LinkForm):
        return problem_of_url(new.form.url)
    if problem := problem_of_form(new.form.schema_json):
        return problem
    [problem] = await problems_of_schemas((new.form.schema_json,))
    return problem


def problem_of_url(url: str) -> str:
    """Returns why an address cannot be shown to a person, such as http to another machine; "" when it can."""
    if len(url) > MAX_URL_CHARS:
        return f"its address is longer than {MAX_URL_CHARS} characters"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "its address is not valid"
    if not url.isascii() or any(char <= " " or char in '\x7f\\"<>' for char in url) or "@" in parts.netloc:
        return "its address has a user name, which hides the host from people, or characters that no address has"
    if not host or parts.scheme not in ("https", "http"):
        return "its address is not https"
    if parts.scheme == "http" and not _is_this_machine(host):
        return "its address is http, which is for this machine alone"
    return ""


def problem_of_form(schema_json: str) -> str:
    """Returns why a text is not the schema of a form; "" when it is. Nesting ends at the choices of a list."""
    if len(schema_json.encode()) > MAX_SCHEMA_BYTES:
        return f"its schema is larger than {MAX_SCHEMA_BYTES} bytes"
    try:
        schema = msgspec.json.decode(schema_json)
    except (msgspec.DecodeError, RecursionError):
        return "its schema is not JSON"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its schema is not that of an object"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        return f"its schema has no list of at most {MAX_FIELDS} properties"
    if other := sorted(key for key in schema if key not in _OF_FORMS):
        return f"its schema has {other[0][:50]!r}, which forms cannot have"
    problems = ((name, _problem_of_field(value)) for name, value in properties.items())
    return next((f"the property {name[:50]!r} of its schema {problem}" for name, problem in problems if problem), "")


async def problem_of_content(question: Question, content_json: str) -> str:
    """Returns why the filled-in content does not fit a question, for the person who filled it in; "" when it does."""
    if isinstance(question.form, LinkForm):
        return "must be empty: nothing is filled in for an address" if content_json else ""
    if len(content_json.encode()) > MAX_CONTENT_BYTES:
        return f"is larger than {MAX_CONTENT_BYTES} bytes"
    try:
        content = msgspec.json.decode(content_json or "{}")
    except (msgspec.DecodeError, RecursionError):
        return "is not JSON"
    if not isinstance(content, dict):
        return "is not a JSON object"
    fields = _fields_of(question.form)
    for name in content:
        if name not in fields:
            return f"has {name[:50]!r}, which the question does not ask for"
    # the schema finds a value of a wrong type, because every property has a type
    problem = await problem_of_value(question.form.schema_json, content_json or "{}")
    return f"does not fit the question: {problem}" if problem else ""


def _fields_of(form: SchemaForm) -> Iterable[str]:
    properties: Iterable[str] = msgspec.json.decode(form.schema_json).get("properties", {})
    return properties


def _problem_of_field(value: Any) -> str:
    if not isinstance(value, dict):
        return "is not a schema"
    kind = value.get("type")
    allowed = _OF_FIELDS.get(kind) if isinstance(kind, str) else None
    if allowed is None:
        return "is neither text, number, yes or no, nor a choice"
    if kind == "array" and not _is_choice(value.get("items")):
        return f"is a list of something else than at most {MAX_CHOICES} choices"
    if any(key in value and not _has_choices(value, key) for key in ("enum", "oneOf")):
        return f"has no list of at most {MAX_CHOICES} choices"
    other = set(value) - allowed - {"type", "title", "description", "default"}
    return f"has {sorted(other)[0][:50]!r}, which fields of a form cannot have" if other else ""


def _is_choice(items: Any) -> bool:
    if not isinstance(items, dict) or set(items) - {"type", "enum", "anyOf"}:
        return False
    return items.get("type", "string") == "string" and (_has_choices(items, "enum") or _has_choices(items, "anyOf"))


def _has_choices(value: dict[str, Any], key: str) -> bool:
    choices = value.get(key)
    if not isinstance(choices, list) or not 0 < len(choices) <= MAX_CHOICES:
        return False
    if key == "enum":
        return all(isinstance(choice, str) for choice in choices)
    return all(
        isinstance(choice, dict) and isinstance(choice.get("const"), str) and not set(choice) - {"const", "title"}
        for choice in choices
    )


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
