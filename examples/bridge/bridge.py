"""Lets the people of a chat service talk with a model, each under their name, all in one conversation for each channel.

    CHAT_API=https://chat.example/api CHAT_SECRET=… python examples/bridge/bridge.py [HOST:PORT [LISTEN]]

The service sends events here (POST), as Slack and its look-alikes do: an id, a channel, a user and a text. The bridge
sends each as a message, and posts the answer, which it then edits while it grows. It stores nothing: the channel names
the session and the event names the message, so what the service sends twice is answered once, over restarts too.
"""

import hmac
import json
import os
import sys
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opencode.message.message_pb2 import DISPOSITION_DUPLICATE
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_client import BlockingClient, TurnwireError

EDIT_SECONDS = 0.5
"""Chat services limit how often a message is edited."""
MAX_EVENT_BYTES = 1 << 20


class Chat:
    """The API of the chat service, as far as it is needed."""

    def __init__(self, url: str, secret: str) -> None:
        """Takes the address, and the secret that both sides know."""
        self._url, self.secret = url, secret

    def call(self, method: str, **arguments: str) -> Any:
        """Calls a method and returns its answer."""
        data = urllib.parse.urlencode(arguments).encode()
        request = urllib.request.Request(f"{self._url}/{method}", data, {"authorization": f"Bearer {self.secret}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


class Bridge:
    """Answers events of the chat service."""

    def __init__(self, client: BlockingClient, chat: Chat) -> None:
        """Takes both sides."""
        self._client, self._chat = client, chat
        self._name = cache(lambda user: chat.call("users.info", user=user)["user"]["real_name"])
        self._session = cache(self._session_of)

    def take(self, event_id: str, event: dict[str, str]) -> None:
        """Answers an event; what goes wrong is told on standard error."""
        try:
            self._answer(event_id, event)
        except (TurnwireError, OSError, LookupError, ValueError) as error:
            print(f"event {event_id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _answer(self, event_id: str, event: dict[str, str]) -> None:
        """Sends the text of a person to the model, and its answer to the channel."""
        if event.get("type") != "message" or "user" not in event:
            return  # what the bridge itself posts has no user
        channel = event["channel"]
        settings = {"sender": event["user"], "sender_name": self._name(event["user"]), "request_id": f"chat-{event_id}"}
        posted, edited, text = "", 0.0, ""
        try:
            with self._client.ask(event["text"], self._session(channel), **settings) as answer:
                for piece in answer:
                    if answer.accepted.disposition == DISPOSITION_DUPLICATE:
                        return
                    text += piece
                    if not posted:
                        posted = self._chat.call("chat.postMessage", channel=channel, text=text)["ts"]
                    elif time.monotonic() - edited > EDIT_SECONDS:
                        self._chat.call("chat.update", channel=channel, ts=posted, text=text)
                        edited = time.monotonic()
        except TurnwireError as error:
            text += f" (failed: {error})"
        if posted:
            self._chat.call("chat.update", channel=channel, ts=posted, text=text)
        elif text:
            self._chat.call("chat.postMessage", channel=channel, text=text)

    def _session_of(self, channel: str) -> str:
        """Returns the session of a channel: the same request gives the same session."""
        settings = SessionSettings(title=f"Channel {channel}", labels={"chat.channel": channel})
        request = CreateSessionRequest(settings=settings, request_id=f"chat-{channel}")
        return self._client.call(self._client.stub(SessionServiceStub).CreateSession, request).id


def handler(bridge: Bridge, chat: Chat, pool: ThreadPoolExecutor) -> type[BaseHTTPRequestHandler]:
    """Returns what takes the events: it confirms each at once, and answers it in the pool."""

    class Events(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            size = int(length) if length.isdecimal() else MAX_EVENT_BYTES + 1
            known = hmac.compare_digest(self.headers.get("authorization", ""), f"Bearer {chat.secret}")
            status = 401 if not known else 413 if size > MAX_EVENT_BYTES else 200
            if status == 200:
                try:
                    body = json.loads(self.rfile.read(size))
                    pool.submit(bridge.take, body["event_id"], body["event"])
                except (ValueError, KeyError, TypeError):
                    status = 400
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing: texts of people are in no log."""

    return Events


def main() -> None:
    """Runs until it is interrupted."""
    given = sys.argv[1:3]
    address, listen = [*given, *("127.0.0.1:50051", "127.0.0.1:3000")[len(given) :]]
    if not {"CHAT_API", "CHAT_SECRET"} <= os.environ.keys():
        sys.exit("Set CHAT_API to the address of the chat service's API, and CHAT_SECRET to the secret shared with it.")
    chat = Chat(os.environ["CHAT_API"], os.environ["CHAT_SECRET"])
    host, _, port = listen.rpartition(":")
    with BlockingClient.connect(address) as client, ThreadPoolExecutor(16) as pool:
        server = ThreadingHTTPServer((host, int(port)), handler(Bridge(client, chat), chat, pool))
        print("listening on http://{}:{}".format(*server.server_address[:2]), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
