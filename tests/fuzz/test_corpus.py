"""What parses bytes of strangers gives an answer or a declared refusal, whatever the bytes are."""

import pytest

from tests.support.fuzzing.corpus import FOLDER, MAX_FILE_BYTES, kept
from tests.support.fuzzing.mutations import mutations
from tests.support.fuzzing.targets import NAMES, target

MUTATIONS = 50
"""Of each target, the same ones each time."""

MAX_CORPUS_BYTES = 300_000


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


def test_the_corpus_is_small() -> None:
    """It is read in each test run, and every file has a target."""
    assert {path.name for path in FOLDER.iterdir()} <= set(NAMES)
    sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(sizes) < MAX_CORPUS_BYTES
    assert max(sizes) <= MAX_FILE_BYTES
