"""What attacks see of refusals, and the table of attacks."""

from bench.attacks.attack import TOO_MANY, Seen
from bench.attacks.table import ATTACKS
from turnwire.api.wire.status import status_of
from turnwire.domain.errors import InvalidRequest, TooManyCalls
from turnwire.domain.limits import Limits


def test_a_refusal_tells_its_limit() -> None:
    """Wherever its status stands in what came."""
    seen = Seen()
    seen.note(b"\x00\x07details" + status_of(TooManyCalls.at("limits.max_calls", 3, None)).SerializeToString())
    seen.note(status_of(InvalidRequest.of("request", "has too much", TOO_MANY)).SerializeToString())
    seen.note(b"")
    assert seen.limits == {"limits.max_calls", TOO_MANY}


def test_the_table_names_limits() -> None:
    """Keys, and those that are parts of keys."""
    named = {limit for attack in ATTACKS.values() for limit in attack.limits}
    keys = {limit.removeprefix("limits.") for limit in named if limit.startswith("limits.")}
    assert [key for key in keys if not hasattr(Limits(), key)] == [] and len(keys) > 5
