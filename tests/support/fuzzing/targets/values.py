"""Texts that callers send inside of requests."""

import base64
import contextlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.support.fuzzing.targets import Target
from tests.support.fuzzing.targets.running import at_end, run
from tests.support.servers.authority import AUDIENCE, ISSUER, IdentityProvider, assembled, jwks
from turnwire.core.intake.contents import decode_data_uri
from turnwire.core.schemas import problem_of_arguments, problems_of_schemas
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.errors import DomainError, InvalidRequest, MessageTooLarge, TooManySignIns, Unauthenticated
from turnwire.domain.searching.queries import parse_query
from turnwire.identity.settings import JwtSettings
from turnwire.identity.web_tokens.verification import JsonWebTokens
from turnwire.ports.store import Moment, Standing

MAX_FILE_BYTES = 1000


def check_data_uri(data: bytes) -> None:
    """A data URI gives at most so many bytes, or is refused; what is taken is base64 that says the same."""
    url = data.decode("utf-8", "surrogateescape")
    try:
        _, content = decode_data_uri(url, "url", MAX_FILE_BYTES)
    except (InvalidRequest, MessageTooLarge) as error:
        assert len(error.message) < 1000
        return
    assert len(content) <= MAX_FILE_BYTES
    text = url.partition(",")[2].rstrip("=")
    assert base64.b64encode(content).decode().rstrip("=")[:-1] == text[:-1]  # the last character may have bits to spare


def check_schema(data: bytes) -> None:
    """A schema has a problem or is used; arguments get a problem or none, each time the same; each is said shortly."""
    schema_json, _, arguments = data.decode("utf-8", "replace").partition("\x00")
    problems = {run(problems_of_schemas((schema_json,))) for _ in range(2)}
    assert len(problems) == 1, "the same schema is judged in two ways"
    assert len(problems.pop()[0]) < 2000
    said = {run(problem_of_arguments(schema_json, arguments)) for _ in range(2)}
    assert len(said) == 1, "the same arguments are judged in two ways"
    assert len(said.pop()) < 5000


class _Store:
    """The part of a store that resume tokens need."""

    token_key = b"k" * 32

    def moment(self, _tenant: str) -> Moment:
        """Returns a moment."""
        return Moment("00" * 8, 7)

    def standing(self, _moment: Moment) -> Standing:
        """Knows every moment."""
        return Standing.PAST


def check_resume_token(data: bytes) -> None:
    """A token is read or refused; only the one that was given leads to a place."""
    tokens = ResumeTokens(_Store())  # type: ignore[arg-type]
    given = tokens.give("acme", "ses_1", 7)
    text = data.decode("utf-8", "surrogateescape")
    try:
        place = tokens.read(text, "acme", "ses_1")
    except InvalidRequest:
        return
    written = text.replace("+", "-").replace("/", "_")  # the other alphabet of base64 says the same
    assert place.standing is Standing.UNKNOWN or written == given, f"{text} was not given"


def check_search_query(data: bytes) -> None:
    """A query is understood or refused."""
    with contextlib.suppress(DomainError):
        parse_query(data.decode("utf-8", "replace"))


@cache
def _tokens_of_a_stranger() -> JsonWebTokens:
    provider = IdentityProvider()
    file = Path(mkdtemp()) / "jwks.json"
    file.write_text(jwks(provider))
    tokens = JsonWebTokens(JwtSettings(issuer=ISSUER, audience=AUDIENCE, keys=str(file)))
    run(tokens.start())
    at_end(tokens.aclose)
    return tokens


def check_web_token(data: bytes) -> None:
    """A token that the issuer did not sign is refused, whatever it says. `|` stands for a boundary of two parts."""
    parts = data.split(b"|")
    token = data.decode("latin-1") if len(parts) != 3 else assembled(*parts)
    tokens = _tokens_of_a_stranger()
    try:
        principal: Any = tokens.recall(token) or run(tokens.verify(token, "192.0.2.1"))
    except (Unauthenticated, TooManySignIns):
        return
    raise AssertionError(f"{token} is {principal}")


def _uris() -> Iterable[bytes]:
    yield b"data:image/png;base64,iVBORw0KGgo="
    yield b"data:;charset=utf-8;base64,YQ=="
    yield b"data:text/plain,words"
    yield b"DATA:a/b;c=d;e=f;BASE64," + b"YWFh" * 20


def _schemas() -> Iterable[bytes]:
    schema = (
        '{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"string",'
        '"pattern":"^a+$","enum":["a"]},"b":{"$ref":"#/$defs/c"}},"$defs":{"c":{"anyOf":[{"type":"integer","minimum":0},'
        '{"not":{"const":null}}]}},"required":["a"],"additionalProperties":false}'
    )
    yield f'{schema}\x00{{"a":"aa","b":1.5}}'.encode()
    yield b'{"type":"array","items":{"uniqueItems":true,"multipleOf":0.1},"minItems":1}\x00[1,1.0]'
    yield b'{"patternProperties":{"(a|b)*":{"format":"email"}},"if":{},"then":{"required":["b"]}}\x00{"a":{}}'
    yield b'{"not":{"$ref":"#"},"properties":{"a":{"$ref":"#"}}}\x00{"a":{"a":{}}}'
    yield b'{"$id":"x","$anchor":"y","$dynamicRef":"#y","prefixItems":[true],"contains":{"maxContains":1}}\x00{}'


def _tokens() -> Iterable[bytes]:
    yield ResumeTokens(_Store()).give("acme", "ses_1", 7).encode()  # type: ignore[arg-type]
    yield ResumeTokens(_Store()).give("acme", None, 7).encode()  # type: ignore[arg-type]


def _queries() -> Iterable[bytes]:
    yield 'plan -"at work" trav* OR "summer tr*" 世界 é🎈 ﬁ'.encode()


def _web_tokens() -> Iterable[bytes]:
    provider = IdentityProvider()
    claims = str(provider.claims(exp=4_000_000_000)).replace("'", '"')
    yield f'{{"alg":"ES256","kid":"first"}}|{claims}|'.encode() + b"s" * 64
    yield provider.token(exp=4_000_000_000).encode()


TARGETS = {
    "data_uri": Target(check_data_uri, _uris),
    "schema": Target(check_schema, _schemas),
    "resume_token": Target(check_resume_token, _tokens),
    "search_query": Target(check_search_query, _queries),
    "web_token": Target(check_web_token, _web_tokens),
}
