"""`turnwire sessions`, `turnwire messages` and `turnwire search` against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST, MESSAGE_TYPE_TOOL_RESULT, ToolResultContent
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart
from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.clients.conversation import new_session, talk, text, tool
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect
from turnwire.cli.commands import app


class Operator:
    """Runs commands against one server."""

    def __init__(self, address: str, client: Client) -> None:
        """Takes the server's address, and a client that prepares what is shown."""
        self._address = address
        self.client = client

    async def run(self, *arguments: str, typed: str = "") -> Result:
        """Runs a command in a thread, because it waits for the server."""
        command = [*arguments, "--target", self._address]
        done = await asyncio.to_thread(CliRunner().invoke, app, command, input=typed)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    async def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Returns the JSON lines of a command that succeeds."""
        done = await self.run(*arguments, "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def left(self) -> set[str]:
        """Returns the sessions that are there."""
        return {session.id for session in (await self.client.sessions.ListSessions(ListSessionsRequest())).sessions}


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    """An operator of a new server, in a process of its own: what it logs is not what a command prints."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        yield Operator(server.address, client)


async def test_list_goes_through_all_pages(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most recently updated first; as many as asked for, with as few calls as that needs."""
    monkeypatch.setattr("turnwire.cli.operator.calls.PAGE_SIZE", 2)
    made = [await new_session(operator.client, title=f"number {number}") for number in range(5)]
    newest_first = made[::-1]
    assert [session["id"] for session in await operator.lines("sessions", "list")] == newest_first
    limited = await operator.lines("sessions", "list", "--limit", "3")
    assert [session["title"] for session in limited] == ["number 4", "number 3", "number 2"]
    table = (await operator.run("sessions", "list")).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["session", *newest_first]
    assert table[1].split()[3:] == ["idle", "number", "4"]


async def test_empty_list(operator: Operator) -> None:
    """Has a header, and no line of JSON."""
    assert (await operator.run("sessions", "list")).stdout.split()[0] == "session"
    assert await operator.lines("sessions", "list") == []


async def test_titles_do_not_control_the_terminal(operator: Operator) -> None:
    """In tables, facts, questions and JSON."""
    session_id = await new_session(operator.client, title="a\x1b[2Jb\u009bc\nd [bold]e[/bold]")
    await operator.client.messages.AppendMessage(
        AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("x\x1b]0;y\x07z")])
    )
    for command in (
        ["sessions", "list"],
        ["sessions", "show", session_id],
        ["messages", "show", session_id],
        ["sessions", "delete", session_id],
    ):
        for option in ([], ["--json"]):
            printed = (await operator.run(*command, *option)).output
            assert not [c for c in printed if (c < " " and c != "\n") or "\x7f" <= c <= "\x9f"], command
    listed = (await operator.run("sessions", "list")).stdout
    assert "[bold]e[/bold]" in listed
    assert listed.count("\n") == 2


async def test_session_is_shown(operator: Operator) -> None:
    """With its settings and what it has used."""
    session_id = await new_session(operator.client, title="A title", agent="default")
    await talk(operator.client, "hello", session_id)
    [shown] = await operator.lines("sessions", "show", session_id)
    assert shown["session"]["settings"]["title"] == "A title"
    printed = (await operator.run("sessions", "show", session_id)).stdout
    facts = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert (facts["session"], facts["title"], facts["status"]) == (session_id, "A title", "idle")
    assert facts["used"] == "input tokens 1, output tokens 1, reasoning tokens 0"
    assert facts["created"].endswith(" UTC")


async def test_messages_are_shown(operator: Operator) -> None:
    """With their parts, in both orders, as many as asked for."""
    session_id = await new_session(operator.client)
    await talk(operator.client, "/reason I think.\nFirst line.\n\nLast line.", session_id)
    failed = MessagePart(tool_result=ToolResultContent(call_id="c9", output="no", is_error=True, exit_code=2))
    append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_TOOL_RESULT, parts=[failed])
    await operator.client.messages.AppendMessage(append)
    await talk(operator.client, '/tool known {"a": 1}\n/step\ndone', session_id)
    printed = (await operator.run("messages", "show", session_id)).stdout
    assert "\n  (result: failed, exit code 2) no\n" in printed
    assert "\n  (reasoning) I think." in printed
    assert "\n  First line.\n  \n  Last line.\n" in printed
    assert '  (call) known {"a": 1} -> ' in printed
    assert " offline/echo\n" in printed
    forwards = [message["messageId"] for message in await operator.lines("messages", "show", session_id)]
    backwards = await operator.lines("messages", "show", session_id, "--newest-first", "--limit", "3")
    assert [message["messageId"] for message in backwards] == forwards[::-1][:3]
    assert backwards[0]["type"] == "MESSAGE_TYPE_ASSISTANT"


async def test_delete_asks(operator: Operator) -> None:
    """Only a yes, or --yes, deletes; the question names what goes."""
    kept, asked, told = [await new_session(operator.client, title=f"T{number}") for number in range(3)]
    for typed in ("n\n", "", "\n"):
        done = await operator.run("sessions", "delete", kept, typed=typed)
        assert (done.exit_code, "deleted" in done.stdout) == (1, False)
        assert f"Delete session {kept} (T0) for ever?" in done.stderr
        assert "turnwire: nothing was deleted\n" in done.stderr
    done = await operator.run("sessions", "delete", asked, typed="y\n")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, f"deleted {asked}")
    assert await operator.lines("sessions", "delete", told, "--yes") == [{"deleted": told}]
    assert await operator.left() == {kept}


@pytest.mark.parametrize(
    "command", [["sessions", "show"], ["sessions", "delete"], ["sessions", "delete", "--yes"], ["messages", "show"]]
)
async def test_unknown_session_is_one_line(operator: Operator, command: list[str]) -> None:
    """Exit code 1."""
    done = await operator.run(*command, "ses_no")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("turnwire: NOT_FOUND: ")


def test_no_server_is_one_line(tmp_path: Path) -> None:
    """Exit code 1, and what to do."""
    done = CliRunner().invoke(app, ["sessions", "list", "--target", f"unix:{tmp_path}/none.sock"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("turnwire: no server answers: ")


async def test_tools_of_clients_are_no_facts_of_a_list(operator: Operator) -> None:
    """They may be large; `show` has them."""
    session_id = await new_session(operator.client, tools=[tool("known")])
    [listed] = await operator.lines("sessions", "list")
    assert "tools" not in listed.get("settings", {})
    [shown] = await operator.lines("sessions", "show", session_id)
    assert [one["name"] for one in shown["session"]["settings"]["tools"]] == ["known"]


async def test_search_prints_what_it_finds(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best or the newest first, with the words around it; nothing controls the terminal; no hit is no error."""
    monkeypatch.setattr("turnwire.cli.operator.calls.PAGE_SIZE", 1)
    session_id = await new_session(operator.client, title="Ships")
    other = await new_session(operator.client)
    stored = []
    for session, words in ((session_id, "The old lighthouse\x1b[2J"), (other, "lighthouse lighthouse")):
        request = AppendMessageRequest(session_id=session, type=MESSAGE_TYPE_HOST, parts=[text(words)])
        stored.append((await operator.client.messages.AppendMessage(request)).message_id)
    printed = (await operator.run("search", "old", "LIGHT*")).stdout.splitlines()
    assert printed[0].split()[:3] == ["host", session_id, stored[0]]
    assert printed[0].endswith("Ships")
    assert printed[1].startswith("  The old lighthouse")
    assert "\x1b" not in "".join(printed)
    assert [hit["messageId"] for hit in await operator.lines("search", "lighthouse")] == stored[::-1]
    only = await operator.lines("search", "lighthouse", "--newest-first", "--limit", "1")
    assert [hit["messageId"] for hit in only] == stored[1:]
    assert [hit["messageId"] for hit in await operator.lines("search", "lighthouse", "--session", other)] == stored[1:]
    assert (await operator.run("search", "nothing")).stdout == ""
    wrong = await operator.run("search", "...")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "query" in wrong.stderr
