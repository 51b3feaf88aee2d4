"""The rows of an ikigai database as an archive: out of PostgreSQL with the printed command, and into sessions."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support.servers.postgres import running_postgres
from turnwire_adapters.importers.archive import MessageRecord, SessionRecord
from turnwire_adapters.importers.ikigai import Rows

ROOT = Path(__file__).parents[2]

TABLE = """
CREATE TABLE messages (id BIGSERIAL PRIMARY KEY, session_id BIGINT NOT NULL, agent_uuid TEXT, kind TEXT NOT NULL,
    content TEXT, data JSONB, created_at TIMESTAMPTZ NOT NULL DEFAULT now());
"""
"""As ikigai makes it."""

ODD = 'a\\b "c"\n\td, \u0001\u0002 \\. 日本語 \U0001f600'
"""Text that a command would change which escapes too much or too little."""

ROWS: list[tuple[int, str, str | None, dict[str, Any] | None]] = [
    (2, "user", "of the second session", None),
    (1, "system", "Be brief.", None),
    (1, "user", ODD, None),
    (1, "tool_call", None, {"tool_call_id": "c1", "tool_name": "echo", "tool_args": json.dumps({"text": ODD})}),
    (1, "tool_result", None, {"tool_call_id": "c1", "output": ODD, "success": True}),
    (2, "clear", None, None),
    (1, "assistant", "done", None),
]


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def test_rows_come_out_of_postgresql_as_they_are(tmp_path: Path) -> None:
    """With the command that docs/adapters/importers.md prints; whatever is in a text."""
    section = (ROOT / "docs/adapters/importers.md").read_text().split("## ikigai\n")[1].split("\n## ")[0]
    [command] = [block for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) if "psql" in block]
    inserts = "".join(
        f"INSERT INTO messages (session_id, kind, content, data) VALUES ({session}, {_literal(kind)},"
        f" {_literal(content)}, {_literal(None if data is None else json.dumps(data))}::jsonb);\n"
        for session, kind, content, data in ROWS
    )
    with running_postgres() as found:
        environ = {**os.environ, **found}
        subprocess.run(["psql", "-qv", "ON_ERROR_STOP=1"], input=TABLE + inserts, env=environ, text=True, check=True)
        subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=environ, check=True, timeout=60)
    with (tmp_path / "rows.jsonl").open("rb") as file:
        found = list(Rows().records(file))
    sessions = [record.session for record in found if isinstance(record, SessionRecord)]
    assert [(session["title"], session.get("system")) for session in sessions] == [("1", "Be brief."), ("2", None)]
    messages = [record for record in found if isinstance(record, MessageRecord)]
    question, call, answer, other = (record.message["parts"][0]["content"] for record in messages)
    assert (question["text"], answer["text"]) == (ODD, "done")
    assert (json.loads(call["input_json"]), call["output"]) == ({"text": ODD}, ODD)
    assert (other["text"], messages[3].hidden) == ("of the second session", True)
