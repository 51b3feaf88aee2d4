"""An MCP server that misbehaves: JSON lines over standard input and output, written by hand.

    python -I -S mcp_wild.py LISTS [FOLDER]

LISTS is what it lists (see `listed`). It speaks 2025-06-18. Its tool `do` behaves as `what` names (see `do`), and
answers after that where it can. In FOLDER it writes the ids of processes that it starts, and what it is to note.
"""

import itertools
import json
import os
import signal
import sys
import time
from typing import Any, BinaryIO

OUT: BinaryIO = sys.stdout.buffer
TOOL = {
    "name": "do",
    "description": "Does it.",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
}


def write(message: dict[str, Any]) -> None:
    """Writes a message."""
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    OUT.flush()


def raw(text: bytes) -> None:
    """Writes bytes."""
    OUT.write(text)
    OUT.flush()


def answer(number: int, words: str = "done", **more: Any) -> None:
    """Answers a call with a text."""
    write({"id": number, "result": {"content": [{"type": "text", "text": words}], **more}})


def begin(number: int) -> bytes:
    """Returns the begin of an answer to a call."""
    return b'{"jsonrpc":"2.0","id":%d,"result":' % number


def notify(method: str, **params: Any) -> None:
    """Writes a notification."""
    write({"method": f"notifications/{method}", "params": params})


def start_child() -> None:
    """Starts a process that takes no notice of SIGTERM, and writes its id to the file `child`."""
    if pid := os.fork():
        with open(os.path.join(sys.argv[2], "child"), "w") as file:  # noqa: PTH118, PTH123
            file.write(str(pid))
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    time.sleep(600)


def do(number: int, what: str, token: Any) -> None:
    """Misbehaves in a way, as the answer to a call."""
    match what:
        case "surrogate":
            raw(begin(number) + b'{"content":[{"type":"text","text":"a\\ud800b \\ud83d\\ude00 \\\\ud800"}]}}\n')
            return
        case "list":
            raw(begin(number) + b"[1,2]}\n")
            return
        case "deep":
            raw(begin(number) + b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}\n")
            return
        case "endless":
            raw(begin(number) + b'{"a":"')
            while True:
                raw(b"x" * 65_536)
        case "garbage":
            raw(b"no\n" * 100_000 + b"{}\n" * 1_000 + b"\n" * 100_000)
        case "twice":
            for other in (number, number, number + 1000, -1):
                answer(other)
            return
        case "progress":
            for step in range(1_000):
                notify("progress", progressToken=token, progress=step, message="x" * 100)
        case "changed":
            for _ in range(1_000):
                notify("tools/list_changed")
        case "notices":
            for step in range(1_000):
                notify("message", level="info", data=f"line {step}")
            notify("message", level="info", data="x" * 1_000_000)
            notify("unknown", data=[])
        case "pings":
            for ping in range(500):
                write({"id": f"p{ping}", "method": "ping"})
        case "asks":
            for one in range(400):
                method = ("sampling/createMessage", "roots/list", "elicitation/create", "no/such")[one % 4]
                write({"id": f"a{one}", "method": method, "params": {}})
                write({"id": "same", "method": method, "params": {"text": "x" * 100_000}})
        case "stderr":
            sys.stderr.write("a line\n" * 2_000_000)
        case "match":
            answer(number, structuredContent={"a": "a" * 60 + "!"})
            return
        case "long":
            raw(begin(number) + b'{"content":[{"type":"text","text":"' + "é".encode() * 5_000_000 + b'"}]}}\n')
            return
        case "picture":
            begins = b'{"content":[{"type":"image","mimeType":"image/png","data":"'
            raw(begin(number) + begins + b"A" * 11_000_000 + b'"}]}}\n')
            return
        case "child":
            start_child()
        case "exit":
            os._exit(3)
        case str() if what.startswith("note "):
            with open(os.path.join(sys.argv[2], "noted"), "a") as file:  # noqa: PTH118, PTH123
                file.write(f"{what[5:]}\n")
            time.sleep(0.3)  # not a wait: the time in which its node may die
    answer(number)


def listed(kind: str, cursor: str) -> dict[str, Any]:
    """Returns a page of the list of tools."""
    tools: list[dict[str, Any]] = [TOOL]
    match kind:
        case "names":
            names = ["two\nlines", "nul\0", "x" * 5000, "", "bell\a", "\u202eright to left", "do", "fine too"]
            tools += [{**TOOL, "name": name} for name in names]
            tools += [{**TOOL, "name": "large", "description": "x" * 100_000}]
        case "heavy":
            tools += [{**TOOL, "name": f"tool{number}", "description": "x" * 60_000} for number in range(100)]
        case "exits":
            write({"id": LISTING[0], "result": {"tools": tools}})
            os._exit(3)
        case "never":
            time.sleep(600)
    return {"tools": tools}


LISTING = [0]


def main() -> None:
    """Answers until the input ends."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                capabilities = {"tools": {"listChanged": True}}
                info = {"name": "wild", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
                write({"id": number, "result": result})
            case "tools/list":
                LISTING[0] = number
                write({"id": number, "result": listed(sys.argv[1], params.get("cursor") or "")})
            case "tools/call":
                token = (params.get("_meta") or {}).get("progressToken")
                do(number, (params.get("arguments") or {}).get("what", ""), token)
            case "ping":
                write({"id": number, "result": {}})
            case str() if number is not None:
                write({"id": number, "error": {"code": -32601, "message": "no such method"}})
    if sys.argv[1] == "stays":
        for _ in itertools.count():
            time.sleep(1)


if __name__ == "__main__":
    main()
