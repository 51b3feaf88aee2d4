"""The exact requests that one long mixed conversation becomes, and what is told of the differences.

`python -m tests.contract.golden` writes the files anew. A change in them is a change of what models are sent: prompt
caches are lost with it, and signed reasoning may be.
"""

import json
from pathlib import Path

import pytest

from tests.support.models.wire_requests import body_of
from tests.support.oracles.golden_history import GOLDEN, HISTORY, HOST_WORDS, golden_files
from tests.support.rules import check_anthropic, check_chat, check_responses
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.repairs import RepairReason

CHECKS = {
    "anthropic": check_anthropic,
    "openai_chat": check_chat,
    "openai_chat_reasoning": check_chat,
    "openai_responses": check_responses,
}

FOLDER = Path(__file__).with_name("golden")
FILES = golden_files()


@pytest.mark.parametrize("name", FILES)
def test_request_is_the_golden_one(name: str) -> None:
    """Byte for byte."""
    assert FILES[name].decode() == (FOLDER / name).read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    """Each file belongs to a request that is still made."""
    assert {path.name for path in FOLDER.glob("*.json")} == set(FILES)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_request_obeys_the_rules(name: str) -> None:
    """The API would take it."""
    assert CHECKS[name](body_of(GOLDEN[name]())) == []


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_request_hides_the_host(name: str) -> None:
    """Messages of the host are not in it, and that is told."""
    prepared = GOLDEN[name]()
    assert HOST_WORDS not in json.dumps(body_of(prepared))
    told = [repair.message_id for repair in prepared.repairs if repair.reason == RepairReason.HOST_MESSAGE]
    assert told == [message.message_id for message in HISTORY if message.type is MessageType.HOST]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_request_keeps_exact_numbers(name: str) -> None:
    """Arguments say 1.0 and not 1, and every digit of a large number."""
    text = json.dumps(body_of(GOLDEN[name]()), ensure_ascii=False).replace("\\", "")
    assert '"ratio": 1.0, "count": 123456789012345678901234567890, "päth": "straße/🎈"' in text
