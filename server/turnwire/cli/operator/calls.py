"""Calls of a running server: pages, JSON lines, and what is printed when a call fails."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from turnwire.cli.connection import Connection, ConnectionProblem, describe
from turnwire.cli.operator.output import print_error

PAGE_SIZE = 100
"""Entries of one call: what is printed while the next call runs."""

TIMEOUT_SECONDS = 60.0
"""Of one call."""


def connected(connection: Connection, run: Callable[[grpc.Channel], int]) -> int:
    """Runs a command on an open channel. Returns its exit code, or that of a failure after one line about it."""
    try:
        with connection.open() as channel:
            return run(channel)
    except ConnectionProblem as problem:
        print_error(str(problem))
        return 2
    except grpc.RpcError as error:
        print_error(describe(error))
        return 1
    except KeyboardInterrupt:
        return 130


def paged(page: Callable[[int, str], Any], entries: Callable[[Any], Any]) -> Iterator[Any]:
    """Yields the entries of all pages; asks for a page when the one before is used up."""
    token = ""
    while True:
        answer = page(PAGE_SIZE, token)
        yield from entries(answer)
        if not (token := answer.next_page_token):
            return


def print_lines(messages: Iterable[Message]) -> None:
    """Prints messages of the contract, each as one line in protobuf's JSON form."""
    for message in messages:
        print(MessageToJson(message, indent=None), flush=True)
