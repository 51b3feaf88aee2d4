"""Answers of models as they come on bad days: cut, refused, paused, failed in the middle, or held back."""

import asyncio
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.models.scripts import Piece, answer, error
from tests.support.oracles.histories import HOST_SECRET
from tests.support.servers.provider import ScriptedReply

_FINISHES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "openai_chat": (
        r'"finish_reason": "(?:stop|tool_calls)"',
        {
            "length": '"finish_reason": "length"',
            "filtered": '"finish_reason": "content_filter"',
            "stopped": '"finish_reason": "stop"',
            "unknown": '"finish_reason": "brand_new"',
        },
    ),
    "openai_responses": (
        r'"status": "completed", "output": ',
        {
            "length": '"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": ',
            "filtered": '"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": ',
            "cancelled": '"status": "cancelled", "output": ',
        },
    ),
    "anthropic": (
        r'"stop_reason": "(?:end_turn|tool_use)"',
        {
            "length": '"stop_reason": "max_tokens"',
            "filtered": '"stop_reason": "refusal"',
            "stopped": '"stop_reason": "end_turn"',
            "paused": '"stop_reason": "pause_turn"',
            "full": '"stop_reason": "model_context_window_exceeded"',
            "unknown": '"stop_reason": "brand_new"',
        },
    ),
}
"""By API: how an answer says why it ended, and what it says instead; an ending without a word here is as usual."""

ENDINGS = ("length", "filtered", "stopped", "paused", "full", "cancelled", "unknown", "cut", "failed", "held")
STATUSES = (400, 401, 413, 429, 500, 529)


class Hold(asyncio.Event):
    """Holds an answer back, and tells when the answer has come so far."""

    def __init__(self, reached: Callable[[], None]) -> None:
        super().__init__()
        self._reached = reached

    async def wait(self) -> bool:
        """Tells that the answer has come here, and waits."""
        self._reached()
        return await super().wait()


@dataclass(frozen=True)
class Reply:
    """A model's answer, for any API."""

    pieces: tuple[Piece, ...] = ()
    ending: str = ""
    """One of ENDINGS; "" is an end in order."""
    after: int = 0
    """For cut, failed and held answers: after how many events, from 0; counted on from the start behind the last, and
    for held ones behind the last but one."""
    status: int = 200

    @property
    def fails(self) -> bool:
        """True for an answer that is an HTTP error."""
        return self.status != 200

    def on_the_wire(self, api: str, hold: Hold) -> ScriptedReply:
        """Returns the answer in an API's format. Errors carry HOST_SECRET: their words are for people only."""
        if self.fails:
            return error(self.status, f"{HOST_SECRET} {self.status}")
        found, words = _FINISHES[api]
        whole = answer(api, *self.pieces)
        word = words.get(self.ending)
        chunks = list(whole.chunks)
        if word is not None:
            chunks = [re.sub(found, lambda _: word, bytes(chunk).decode()).encode() for chunk in whole.chunks]
        place = 1 + self.after % len(chunks)
        if self.ending == "cut":
            # without a broken connection: what a client has read before it notices that is a matter of time
            return ScriptedReply(chunks[:place])
        if self.ending == "failed":
            return ScriptedReply([*chunks[:place], _failure(api)])
        if self.ending == "held":  # before the end marker: nobody waits for long for what is behind it
            chunks.insert(1 + self.after % (len(chunks) - 1), hold)
        return dataclasses.replace(whole, chunks=chunks)


def _failure(api: str) -> bytes:
    fault = {"type": "server_error", "code": "server_error", "message": f"{HOST_SECRET} in the stream"}
    if api == "anthropic":
        return f"event: error\ndata: {json.dumps({'type': 'error', 'error': fault})}\n\n".encode()
    event = {"error": fault} if api == "openai_chat" else {"type": "response.failed", "response": {"error": fault}}
    return f"data: {json.dumps(event)}\n\n".encode()
