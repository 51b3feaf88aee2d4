"""What parses bytes of strangers gives an answer or a declared refusal, whatever the bytes are."""

import pytest

from tests.support.fuzzing.corpus import kept
from tests.support.fuzzing.mutations import mutations
from tests.support.fuzzing.targets import NAMES, target

MUTATIONS = 50
"""Of each target, the same ones each time."""


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_answered_or_refused(name: str) -> None:
    """Right ones, those that the fuzzer found, and some that are almost right."""
    chosen = target(name)
    examples = [*chosen.examples(), *kept(name).values()]
    assert examples
    for data in (*examples, *mutations(examples, MUTATIONS)):
        try:
            chosen.check(data)
        except BaseException as error:
            error.add_note(f"the target is {name}, and the input {data!r}")
            raise
