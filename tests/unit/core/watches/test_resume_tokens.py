"""Resume tokens: what they say, and what is none."""

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.core import FakeStore
from turnwire.core.watches.resume_tokens import MAX_CONTENT_BYTES, TAG_BYTES, ResumeTokens, Seal, TokenPlace
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.store import Moment, Standing

LARGEST = 2**64 - 1


class Log(FakeStore):
    """A log whose end a test moves."""

    position = 0

    def moment(self, tenant: str) -> Moment:
        """Returns its end."""
        return Moment(self.timeline, self.position)

    def standing(self, moment: Moment) -> Standing:
        """Remembers what was asked."""
        self.asked = moment
        return super().standing(moment)


@given(st.one_of(st.none(), st.text(min_size=1)), st.integers(0, LARGEST), st.integers(0, LARGEST))
def test_a_token_gives_back_what_went_in(session_id: str | None, order: int, position: int) -> None:
    """For any session and any place, in less than 60 characters that need no escaping in an address."""
    log = Log()
    log.position = position
    tokens = ResumeTokens(log)
    token = tokens.give(DEFAULT_TENANT, session_id, order)
    assert len(token) < 60
    assert token.replace("-", "").replace("_", "").isalnum()
    assert tokens.read(token, DEFAULT_TENANT, session_id) == TokenPlace(order, Standing.PAST)
    assert log.asked == Moment(log.timeline, order if session_id is None else position)


async def test_a_reader_gets_a_token_of_after_its_read() -> None:
    """The position in it is one by which all was published that the read may have seen."""
    log = Log()

    async def publish(tenant: str, session_id: str) -> Moment:
        log.position = 9
        return log.moment(tenant)

    log.moment_after_reads = publish
    tokens = ResumeTokens(log)
    tokens.read(await tokens.give_reader(DEFAULT_TENANT, "ses_1", 4), DEFAULT_TENANT, "ses_1")
    assert log.asked.position == 9


@pytest.mark.parametrize("standing", [Standing.REPLACED, Standing.UNKNOWN])
def test_a_token_of_another_timeline_says_so(standing: Standing) -> None:
    """As the store sees it."""
    log = Log(other_timelines=standing)
    token = ResumeTokens(log).give(DEFAULT_TENANT, "ses_1", 3)
    log.timeline = "f" * 16
    assert ResumeTokens(log).read(token, DEFAULT_TENANT, "ses_1") == TokenPlace(3, standing)


def test_the_same_place_later_has_another_token() -> None:
    """Watchers share the token of one moment, not of one place."""
    log = Log()
    tokens = ResumeTokens(log)
    first = tokens.give(DEFAULT_TENANT, "ses_1", 3)
    assert tokens.give(DEFAULT_TENANT, "ses_1", 3) == first
    log.position = 4
    assert tokens.give(DEFAULT_TENANT, "ses_1", 3) != first
    assert tokens.give(DEFAULT_TENANT, "ses_2", 3) != tokens.give(DEFAULT_TENANT, "ses_1", 3)


@pytest.mark.parametrize(("given_to", "shown_for"), [("ses_1", "ses_2"), ("ses_1", None), (None, "ses_1")])
def test_a_token_counts_for_what_it_was_given_for(given_to: str | None, shown_for: str | None) -> None:
    """One session, or all."""
    tokens = ResumeTokens(Log())
    with pytest.raises(InvalidRequest) as caught:
        tokens.read(tokens.give(DEFAULT_TENANT, given_to, 3), DEFAULT_TENANT, shown_for)
    assert caught.value.metadata["field"] == "resume_token"


def test_what_is_changed_or_cut_is_no_token() -> None:
    """Every character counts."""
    tokens = ResumeTokens(Log())
    token = tokens.give(DEFAULT_TENANT, "ses_1", 3)
    other = [token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in range(len(token))]
    for nonsense in (*other, token[:-1], token[:-4], token + "A", token + "AAAA", token + "\n", "é", "%%%%", "AAAA"):
        with pytest.raises(InvalidRequest):
            tokens.read(nonsense, DEFAULT_TENANT, "ses_1")


@pytest.mark.parametrize("session_id", ["ses_1", None])
def test_the_token_of_another_tenant_is_unknown(session_id: str | None) -> None:
    """So is that of another database."""
    token = ResumeTokens(Log()).give(DEFAULT_TENANT, session_id, 3)
    assert ResumeTokens(Log()).read(token, "other", session_id) == TokenPlace(0, Standing.UNKNOWN)
    other = Log()
    other.token_key = bytes(range(32))
    assert ResumeTokens(other).read(token, DEFAULT_TENANT, session_id) == TokenPlace(0, Standing.UNKNOWN)


def test_tokens_do_not_show_their_place() -> None:
    """Those of two places that follow each other have no more in common than any two."""
    tokens = ResumeTokens(Log())
    shown = [base64.urlsafe_b64decode(tokens.give(DEFAULT_TENANT, None, order))[1:-2] for order in range(500, 600)]
    for one, next_one in itertools.pairwise(shown):
        assert sum(a == b for a, b in zip(one, next_one, strict=True)) < len(one) // 3


SEAL = Seal(bytes(32))


@given(st.text(max_size=20), st.binary(min_size=1, max_size=MAX_CONTENT_BYTES))
def test_what_is_sealed_opens(context: str, content: bytes) -> None:
    """Sealed again it is the same, so that many callers share one text."""
    sealed = SEAL.close(context, content)
    assert SEAL.open(context, sealed) == content
    assert SEAL.close(context, content) == sealed
    assert len(sealed) == len(content) + TAG_BYTES


@given(st.binary(min_size=1, max_size=MAX_CONTENT_BYTES), st.integers(0, 10_000))
def test_no_changed_bit_opens(content: bytes, place: int) -> None:
    """Wherever it is."""
    sealed = bytearray(SEAL.close("one", content))
    sealed[place % len(sealed)] ^= 1 << place % 8
    assert SEAL.open("one", bytes(sealed)) is None


def test_another_key_or_context_does_not_open() -> None:
    """A context is not joined with the content either."""
    sealed = SEAL.close("one", b"content")
    assert SEAL.open("two", sealed) is None
    assert Seal(bytes(31) + b"\1").open("one", sealed) is None
    assert SEAL.close("onec", b"ontent")[:TAG_BYTES] != sealed[:TAG_BYTES]


@pytest.mark.parametrize("sealed", [b"", bytes(TAG_BYTES), bytes(TAG_BYTES + MAX_CONTENT_BYTES + 1)])
def test_what_was_never_sealed_does_not_open(sealed: bytes) -> None:
    """Too short, or too long."""
    assert SEAL.open("one", sealed) is None
