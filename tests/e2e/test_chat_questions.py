"""Questions of tools in the chat: a real MCP server asks, and a person answers at the prompt, or a pipe does not."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from opencode.question.question_pb2 import (
    QUESTION_ACTION_DECLINE,
    AnswerQuestionRequest,
    ListQuestionsRequest,
    Question,
)
from tests.support.clients.chat_room import Chat, chatting
from tests.support.clients.conversation import ask, new_session
from tests.support.servers.mcp import ENVIRON, asker, ready
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server

PAINT = '/tool ask.paint {"what": "the door"}'
CTRL_C = "\x03"


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose tools ask people, in the newest version and with 2025-11-25."""
    toml = asker() + asker("old", 'protocol = "handshake"')
    async with running_server(tmp_path_factory.mktemp("chat"), toml, ENVIRON) as running:
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


async def open_question(other: Client, session_id: str) -> Question:
    """Waits for the question of a session."""
    request = ListQuestionsRequest(session_id=session_id)
    while not (found := (await other.questions.ListQuestions(request)).questions):
        await asyncio.sleep(0.01)
    return found[0]


async def test_a_form_is_filled_in_field_by_field_and_sent(chat: Chat) -> None:
    """Who asks and what stays on the screen. A value that is none is told. All is seen before it is sent."""
    chat.press(f" {PAINT}\r")
    await chat.shows("? ask (ask.paint) asks", "Which colour for the door?")
    await chat.has_live("? ask asks, 1 of 2: Colour", "at most 20 characters", "Name of a colour", "/decline [why]")
    chat.press("\r")
    await chat.has_live("Colour: is required")
    chat.press("red\r")
    await chat.has_live("2 of 2: Coats (whole number, at least 1, at most 5, optional)", "Enter takes 1")
    chat.press("many\r")
    await chat.has_live("Coats: is not a whole number")
    chat.press("9\r")
    await chat.has_live("Coats: is not allowed")
    chat.press("\r")
    await chat.has_live("1 Colour: red", "2 Coats: 1", "y sends it")
    chat.press("2\r")
    await chat.has_live("2 of 2: Coats", "Enter keeps 1")
    chat.press("3\r")
    await chat.has_live("2 Coats: 3", "y sends it")
    chat.press("y\r")
    await chat.shows("answered: ask: Which colour for the door?", "the door is red, 3 times", "tokens in")


async def test_every_kind_of_value_reaches_the_tool(chat: Chat) -> None:
    """A field that does not fit is asked again; one can be changed before all of it is sent."""
    chat.press(" /tool old.order {}\r")
    await chat.shows("? old (old.order) asks", "What]0;t do you drink?")
    await chat.has_live("1 of 5: Your name (text, at least 3 characters, as ^[A-Z])")
    chat.press("an\r")
    await chat.has_live("1 of 5: Your name", "at least 3 characters")
    chat.press("ann\r")
    await chat.has_live("2 of 5: size (one of the choices)", "1 Small (s)", "2 Large (l)")
    chat.press("2\r")
    await chat.has_live("3 of 5: with (choices, optional)", "1 milk", "2 sugar", "Enter takes milk")
    chat.press("milk, 2\r")
    await chat.has_live("4 of 5: price (number, at least 0.5, optional)", "Enter leaves it out")
    chat.press("?\r")
    await chat.shows("What]0;t do you drink?", "price (price)")
    chat.press("2.5\r")
    await chat.has_live("5 of 5: hot (yes or no)", "As hot[2J as it is")
    chat.press("y\r")
    await chat.has_live("1 Your name: ann", "2 size: Large", "3 with: milk, sugar", "4 price: 2.5", "5 hot: yes")
    chat.press("1\r")
    await chat.has_live("1 of 5: Your name", "Enter keeps ann")
    chat.press("Ann\r")
    await chat.has_live("1 Your name: Ann", "y sends it")
    chat.press("y\r")
    sent = '{"name": "Ann", "size": "l", "with": ["milk", "sugar"], "price": 2.5, "hot": true}'
    await chat.shows("answered: old:", f"accept: {sent}", "tokens in")


async def test_an_address_is_shown_whole_and_agreed_to(chat: Chat) -> None:
    """With its host. Other text is no answer; the chat opens nothing."""
    link = "x" * 300
    chat.press(f' /tool old.connect {{"link": "{link}"}}\r')
    whole = await chat.shows("Connect your account", "at example.com, in your browser", "y agrees")
    assert f"https://example.com/connect/{link}" in whole.replace("\n", "")
    chat.press("perhaps\r")
    await chat.has_live("Answer the question first")
    chat.press("y\r")
    await chat.shows("answered: old: Connect your account", "link: accept", "tokens in")


@pytest.mark.parametrize(
    ("typed", "told", "result"),
    [
        ("/decline not now", "declined: not now: ask", "not painted: decline"),
        ("/cancel", "put away: ask", "not painted: cancel"),
    ],
)
async def test_a_form_is_left_by_a_word(chat: Chat, typed: str, told: str, result: str) -> None:
    """At any field, in which other text would be a value; the tool learns how."""
    chat.press(f" {PAINT}\r")
    await chat.has_live("1 of 2: Colour")
    chat.press(f"{typed}\r")
    await chat.shows(told, result, "tokens in")
    chat.press(f"{typed}\r")
    await chat.shows("[no tool asks a question]")


async def test_ctrl_c_at_a_form_ends_the_turn(chat: Chat) -> None:
    """As at a permission request, and the question with it; what was typed for the tool is no message."""
    chat.press(f" {PAINT}\r")
    await chat.has_live("1 of 2: Colour")
    chat.press("secret")
    await chat.shows("secret")
    chat.press(CTRL_C)
    await chat.shows("put away: ask", "[aborted]")
    chat.press("again\r")
    await chat.shows("> again\n", "\nagain\n", "tokens in")


async def test_a_question_that_is_answered_elsewhere_goes_away(served: Server, other: Client) -> None:
    """Joining a session asks what is open in it; a draft waits meanwhile and is no value."""
    session_id = await new_session(other)
    await other.messages.SendMessage(ask(PAINT, session_id))
    first = await open_question(other, session_id)
    async with chatting(served.address, session_id) as chat:
        await chat.has_live("1 of 2: Colour")
        chat.press("blue\r")
        await chat.has_live("2 of 2: Coats")
        decline = AnswerQuestionRequest(
            session_id=session_id, question_id=first.question_id, action=QUESTION_ACTION_DECLINE, reason="mine"
        )
        await other.questions.AnswerQuestion(decline)
        await chat.shows("declined: mine: ask: Which colour", "not painted: decline", "tokens in")
        chat.press("a draft")
        await chat.shows("a draft")
        await other.messages.SendMessage(ask(PAINT, session_id))
        await chat.has_live("1 of 2: Colour")
        chat.press("green")
        await chat.shows("green")
        decline.question_id = (await open_question(other, session_id)).question_id
        await other.questions.AnswerQuestion(decline)
        await chat.shows("declined: mine: ask: Which colour", "tokens in")
        await chat.shows("a draft")
        chat.press("\r")
        await chat.shows("> a draft\n", "\na draft\n", "tokens in")


async def test_a_pipe_declines(served: Server, other: Client) -> None:
    """Nobody can be asked: the call goes on, and the answer alone is on standard output."""
    chat = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwire", "chat", "--target", served.address),
        env={**os.environ, "TERM": "xterm"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    written, aside = await asyncio.wait_for(chat.communicate(f"{PAINT}\n/step\nthe answer".encode()), 60)
    assert (chat.returncode, written) == (0, b"the answer\n")
    assert b"[ask asks]\nWhich colour for the door?\n" in aside
    assert b"ask.paint -> not painted: decline" in aside
