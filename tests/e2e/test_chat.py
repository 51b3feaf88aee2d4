"""The chat at a terminal, against a real server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from opencode.message.message_pb2 import AbortSessionRequest
from opencode.session.session_pb2 import DeleteSessionRequest
from opencode.tool.tool_pb2 import ListPermissionsRequest, PermissionResponse
from tests.support.clients.chat_room import Chat, chatting
from tests.support.clients.conversation import FOREVER, ask, new_session, talk
from tests.support.servers.mcp import ENVIRON, ready, stdio
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server
from turnwire.cli.chat.view.transcript import Transcript

ADD = '/tool test.add {"a": 2, "b": 3}'
CTRL_C, CTRL_D, CTRL_J, CTRL_O, CTRL_U, ALT_ENTER = "\x03", "\x04", "\n", "\x0f", "\x15", "\x1b\r"


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose tools ask for permission."""
    folder = tmp_path_factory.mktemp("chat")
    toml = stdio(folder) + '[permissions]\n"test.*" = "ask"\n'
    async with running_server(folder, toml, ENVIRON) as running:
        yield running


@pytest.fixture(scope="module")
async def other(served: Server) -> AsyncIterator[Client]:
    """Another client of that server."""
    async with connect(served.address) as connected:
        await ready(connected)
        yield connected


@pytest.fixture
async def chat(served: Server, other: Client) -> AsyncIterator[Chat]:
    """A chat that has just begun."""
    async with chatting(served.address) as begun:
        yield begun


async def send(chat: Chat, text: str) -> None:
    """Pastes a message and sends it: a single line that begins with a slash would be a command."""
    chat.paste(f" {text}" if text.startswith("/") else text)
    chat.press("\r")


async def test_an_answer_is_drawn_as_markdown(chat: Chat) -> None:
    """Reasoning is folded and shown on demand; the turn's end says what was used."""
    await send(chat, "/reason let me see\n# Big\n\n- one\n- two")
    await chat.shows("> /reason let me see", "reasoned for", "(10 characters, Ctrl-O shows them)")
    await chat.shows("Big\n", " • one\n • two\n", "tokens in")
    chat.press(CTRL_O)
    await chat.shows("\nlet me see\n")


async def test_ctrl_c_ends_the_answer_and_the_chat_goes_on(chat: Chat) -> None:
    """What came stays; the next message is answered."""
    await send(chat, f"begun\n{FOREVER}")
    await chat.shows("begun", "Ctrl-C ends the answer")
    chat.press(CTRL_C)
    await chat.shows("[aborted]")
    await send(chat, "again")
    await chat.shows("> again", "\nagain\n", "tokens in")


async def test_ctrl_c_empties_the_line_when_nothing_runs(chat: Chat) -> None:
    """Nothing of it is sent."""
    chat.press(f"unsent{CTRL_C}sent\r")
    await chat.shows("> sent\n", "\nsent\n")
    assert "unsentsent" not in chat.everything


async def test_ctrl_u_empties_all_lines(chat: Chat) -> None:
    """Wherever the cursor is."""
    chat.paste("one\ntwo\nthree")
    chat.press(f"{CTRL_U}sent\r")
    await chat.shows("> sent\n", "\nsent\n")
    assert "two\nthreesent" not in chat.everything
    assert "> one" not in chat.everything.partition("> sent")[2]


async def test_a_pasted_text_of_several_lines_is_one_message(chat: Chat, other: Client) -> None:
    """Sent when Enter is pressed; two keys begin a line."""
    chat.paste("one\r\ntwo\nthree")
    chat.press(f"{CTRL_J}four{ALT_ENTER}five\r")
    await chat.shows("> one\ntwo\nthree\nfour\nfive\n", "\none two three four five\n")


async def test_a_question_is_asked_and_answered(chat: Chat) -> None:
    """A message that was being typed is no answer, and stays; "?" shows everything."""
    await send(chat, ADD)
    await chat.shows('? asks to run test.add {"a": 2, "b": 3}')
    chat.press("a draft\r")
    await chat.shows("Answer the question first")
    chat.press(f"{CTRL_U}?\r")
    await chat.shows('{"arguments":{"a": 2, "b": 3}}', "always allows: test.add")
    chat.press("y\r")
    await chat.shows("allowed once: test.add", "● test.add", "success", "the sum is 5", "tokens in")
    await send(chat, ADD)
    await chat.shows("? asks to run")
    chat.press("n not today\r")
    await chat.shows("denied: not today: test.add", "error", "The user said: not today", "tokens in")


async def test_a_question_is_allowed_for_the_session(chat: Chat) -> None:
    """The second call does not ask; the open question of the same tool is closed too."""
    await send(chat, f"{ADD}\n{ADD}")
    await chat.shows("? asks to run (1 of 2)")
    chat.press("A\r")
    await chat.shows("always allowed: test.add", "always allowed: test.add", "tokens in")


async def test_ctrl_c_at_a_question_ends_the_turn(chat: Chat) -> None:
    """And the question with it."""
    await send(chat, ADD)
    await chat.shows("? asks to run")
    chat.press(CTRL_C)
    await chat.shows("[aborted]")
    await send(chat, "again")
    await chat.shows("\nagain\n", "tokens in")


async def test_a_resumed_session_shows_its_last_messages_and_asks_what_is_open(served: Server, other: Client) -> None:
    """Also when another client sent the message; each is shown once."""
    session_id = await new_session(other, title="The sums")
    await talk(other, "# Before", session_id)
    await other.messages.SendMessage(ask(f"I look.\n{ADD}", session_id, sender_name="Ann"))
    while not (await other.permissions.ListPermissions(ListPermissionsRequest(session_id=session_id))).permissions:
        await asyncio.sleep(0.01)
    async with chatting(served.address, session_id) as chat:
        await chat.shows(f"Session {session_id} The sums", "> # Before", "Before\n", "Ann > I look.", "\nI look.\n")
        await chat.shows("? asks to run test.add")
        chat.press("y\r")
        await chat.shows("allowed once", "the sum is 5", "tokens in")
        assert chat.everything.count("\nI look.\n") == 1


async def test_a_question_of_another_client_comes_and_goes(served: Server, other: Client) -> None:
    """When that client answers it, the prompt is free again."""
    session_id = await new_session(other)
    async with chatting(served.address, session_id) as chat:
        await chat.shows(f"Session {session_id}")
        await other.messages.SendMessage(ask(ADD, session_id, sender="ann"))
        await chat.shows("ann > /tool", "? asks to run test.add")
        (request,) = (
            await other.permissions.ListPermissions(ListPermissionsRequest(session_id=session_id))
        ).permissions
        answer = PermissionResponse(session_id=session_id, permission_id=request.id, response="reject", reason="mine")
        await other.permissions.RespondToPermission(answer)
        await chat.shows("denied: mine: test.add", "tokens in")
        await send(chat, "y")
        await chat.shows("> y", "\ny\n", "tokens in")


async def test_help_lists_commands_and_unknown_ones_are_not_sent(chat: Chat) -> None:
    """A space in front sends them."""
    chat.press("/help\r")
    await chat.shows("/help ", "/sessions ", "/resume ID|NUMBER", "/exit ", "Ctrl-C ")
    chat.press("/nothing\r")
    await chat.shows("there is no /nothing")
    chat.press(" /nothing\r")
    await chat.shows("> /nothing\n", "\n/nothing\n")


async def test_sessions_are_listed_chosen_copied_emptied_and_left(chat: Chat, other: Client) -> None:
    """By commands."""
    await send(chat, "the first")
    await chat.shows("\nthe first\n", "tokens in")
    first = chat.room.session_id
    chat.press("/title Our first\r")
    chat.press("/sessions\r")
    await chat.shows("*  1", "Our first", first)
    chat.press("/fork\r")
    await chat.shows("Session ses_", "> the first", "\nthe first\n")
    copy = chat.room.session_id
    assert copy != first
    chat.press("/clear\r")
    await chat.shows("Hidden messages: 2.")
    chat.press("/restore\r")
    await chat.shows("Messages brought back: 2.")
    chat.press("/new\r")
    await chat.shows("begins a new session")
    assert chat.room.session_id == ""
    chat.press("/sess\t")
    await chat.shows("ions")
    chat.press("\r")
    await chat.shows("  1", copy, "  2", first)
    chat.press("/resume 2\r")
    await chat.shows(f"Session {first} Our first", "> the first")
    chat.press("/resume ses_none\r")
    await chat.shows("NOT_FOUND")
    assert chat.room.session_id == first
    await other.sessions.DeleteSession(DeleteSessionRequest(session_id=first))
    await chat.shows("the session was deleted")


async def test_messages_are_found_and_their_session_chosen(chat: Chat, other: Client) -> None:
    """By words of any session; the place that has them is shown."""
    session_id = await new_session(other, title="Animals")
    await talk(other, "the ocelot sleeps", session_id)
    chat.press("/search ocelot\r")
    await chat.shows("   1 ", " Animals ", session_id, "the ocelot sleeps", "/resume NUMBER")
    chat.press("/resume 1\r")
    await chat.shows(f"Session {session_id} Animals", "> the ocelot sleeps")
    chat.press("/search nothingofthekind\r")
    await chat.shows("Nothing is found.")
    chat.press("/search\r")
    await chat.shows("INVALID_ARGUMENT")


async def test_remarks_are_shown_while_an_answer_streams(chat: Chat) -> None:
    """And a message that is sent meanwhile waits."""
    await send(chat, f"begun\n{FOREVER}")
    await chat.shows("begun")
    chat.press("/help\r")
    await chat.shows("/help ")
    chat.press("next\r")
    await chat.shows("> next", "[waits at place 1]")
    chat.press(CTRL_C)
    await chat.shows("[aborted]", "\nnext\n", "tokens in")


async def test_an_answer_goes_on_without_the_chat(served: Server, other: Client) -> None:
    """Ctrl-D ends the chat alone."""
    async with chatting(served.address) as chat:
        await send(chat, f"begun\n{FOREVER}")
        await chat.shows("begun", "Ctrl-C ends the answer")
        chat.press(CTRL_D)
        await chat.ended()
    aborted = await other.messages.AbortSession(AbortSessionRequest(session_id=chat.room.session_id))
    assert aborted.turn_id


async def test_a_long_answer_is_drawn_whole_in_bounded_frames(chat: Chat) -> None:
    """A flood of text: every word once, whatever the number of events."""
    await send(chat, "/words 20000\nthe last words")
    shown = await chat.shows("tokens in")
    assert "the last words" in shown
    assert sum(map(shown.count, ("lorem", "ipsum"))) >= 500


async def test_an_error_of_the_chat_itself_ends_it(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of leaving a prompt at which nothing happens."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Transcript, "apply", fail)
    await send(chat, "hello")
    with pytest.raises(ZeroDivisionError):
        await chat.ended()


async def test_the_chat_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    """It says so, follows the session again, and the conversation goes on."""
    server = await ServerProcess.start(tmp_path)
    try:
        async with chatting(server.address) as chat:
            await send(chat, f"begun\n{FOREVER}")
            await chat.shows("> begun", "Ctrl-C ends the answer")
            await server.kill()
            await chat.shows("[connection lost, trying again:")
            server = await ServerProcess.start(tmp_path, listen=server.address)
            await chat.shows("[connected again]")
            chat.press("/abort\r")  # the turn goes on when nothing of its answer was stored
            await send(chat, "still there?")
            await chat.shows("\nstill there?\n", "tokens in")
    finally:
        await server.kill()
