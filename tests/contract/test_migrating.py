"""docs/migrating.md: every row of its tables names a test that is there, and its Python runs."""

import ast
import re
from pathlib import Path

import pytest

from turnwire.interop.plue.codes import CODES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/migrating.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
ROWS = re.findall(r"^\| (.+) \| (.+) \| `([\w/]+\.py)::(\w+)` \|$", TEXT, re.MULTILINE)


PROMISED = {
    "pynchy": (
        "host", "command output", "bot", "notices", "traces", "`legacy_kind`", "`--reclassify`", "`--dry-run`",
        "`--verify`", "`--backup`", "`message_type`", "`metadata`", "index", "seven columns", "running twice",
        "a write during the migration", "half migrated", "killed", "house, tick, cross", "fences",
        "one id in two chats",
        "two formats of time", "whose chat is missing", "`cleared_at`", "`NAME: `", "`[host] `",
        "`[system] `",
        "NULL senders", "output without code", "a tick of a person", "empty", "never sent", "converting a host message",
        "invalid JSON in a trace",
    ),
    "OpenCode desktop": (
        "fixed contract", "`messageInfo.schema.json`", "`messagePart.schema.json`", "streaming flow",
        "aborts twice, 200 ms apart", "answers permissions after an abort", "`finish` null", "`message_updated`",
        "`message_part_updated`", "`SendMessage`", "`GetMessages`", "`AbortSession`", "`CreateSession`",
        "`ListSessions`", "`UpdateSessionDirectory`", "`DeleteSession`", "`GetProviders`", "`ListAgents`",
        "`RespondToPermission`", "`ToolCallState`",
    ),
    "Maria": (
        "content as text or array", "array parts join without separator", "`tool_calls`", "`function.arguments`",
        "`tool_call_id`", "`prompt_tokens`", "`completion_tokens`", "`total_tokens`", "`cached_tokens`",
        "arguments null", "assistant without content", "tool content as array", "`MessageQueued`",
        "`MessageUnqueued`", "`PreConversation`", "`MessageAdded`", "`RequestCompleted`", "`PreToolCall`",
        "`PostToolCall`", "`PostConversation`", "`queued_messages.synchronized`", "cancel drops the queue",
    ),
    "Plue": (
        "`plue_message_send`", "`plue_message_list`", "`plue_message_get`", "`plue_message_stream_response`", "`text`",
        "`attachments[].path`", "`content`", "`tool_use`", "`done`", "`tool_result`", "`reasoning`", "`path`",
        "`language`", "`tool_name`", "`parameters`", "`tool_use_id`", "`result`", "`error`", "`message_id`",
        "`part_index`", "`usage`", "`cost`", "`input_tokens`", "`output_tokens`", "`total_tokens`",
        "numeric error codes", "1,000 concurrent sends", "insertion order", "restart", "allowed roots", "size limit",
        "first-token latency", "backpressure", "partial recovery", "clean-up on abort", "slow streams", "fast streams",
        "bad JSON", "unknown model", "usage adds up",
    ),
    "ikigai": (
        "roles user, assistant, tool", "text, tool_call, tool_result, thinking, redacted thinking", "`tool_call_id`",
        "`tool_name`", "`name`", "`tool_args`", "`arguments`", "`thinking`", "`redacted_thinking`", "`output`",
        "`success`", "`system`", "`clear`", "`mark`", "`rewind`", "`provider_metadata`", "signatures", "add;",
        "10,000", "clone", "fork at a message", "one storage", "malformed rows", "know no provider",
    ),
}  # fmt: skip
"""What the users of each system were promised, in the words of their first column or of the second."""


@pytest.mark.parametrize("section", PROMISED)
def test_what_a_system_promised_has_a_row(section: str) -> None:
    """Every function, field and event, beside the test that proves it."""
    rows = re.findall(r"^\| (.+ \| .+) \| `[\w/]+\.py::\w+` \|$", SECTIONS[section], re.MULTILINE)
    table = "\n".join(rows)
    assert [words for words in PROMISED[section] if words not in table] == []


def test_every_row_has_a_test() -> None:
    """A row without one promises something that nothing proves."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and "| test |" not in line]
    with_tests = [line for line in lines if line.count(" | ") == 2 and "::" in line]
    assert len(with_tests) == len(ROWS)
    assert len(ROWS) >= 15


@pytest.mark.parametrize(("file", "name"), sorted({(file, name) for _, _, file, name in ROWS}))
def test_the_test_of_a_row_is_there(file: str, name: str) -> None:
    """Under the name that the row gives it."""
    tree = ast.parse((ROOT / "tests" / file).read_bytes())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(section: str) -> None:
    """What it imports is there, and its definitions are valid; end-to-end tests do what it shows."""
    for block in re.findall(r"^```python\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE):
        exec(compile(block, section, "exec"), {})


def test_codes_of_plue_are_those_of_the_table() -> None:
    """Each reason beside its code, and every reason; each code in one row."""
    rows = re.findall(r"^\| (-\d+) [A-Z_]+ \| (.+) \|$", SECTIONS["Plue"], re.MULTILINE)
    assert [int(code) for code, _ in rows] == sorted(set(CODES.values()), reverse=True)
    written = {reason: int(code) for code, reasons in rows for reason in re.findall(r"`([A-Z_]+)`", reasons)}
    assert written == CODES
