"""Answers of the world's models: each message of a user names its script."""

import itertools
import json
import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.support.models.odd_answers import Hold, Reply
from tests.support.models.scripts import API_OF_PATH, CHECKS, Say
from tests.support.rules import check_anthropic
from tests.support.servers.provider import RecordedRequest, ScriptedReply

FINE = Say("Fine.")
"""Last words of a model when its script has ended."""

_MARK = re.compile(r"\(script (k\d+)\)")


@dataclass(eq=False)
class Held:
    """An answer that has come so far and no further."""

    hold: Hold
    request: RecordedRequest

    @property
    def is_awaited(self) -> bool:
        """Whether somebody still reads the answer, and nobody let it go."""
        return not self.hold.is_set() and not self.request.disconnected.is_set()


class Answers:
    """All scripts, and the answers that are held back now."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._scripts: dict[str, deque[Reply]] = {}
        self._held: list[Held] = []
        self.refusals: list[str] = []
        """Why an API would have refused a request that a model was asked with."""

    def mark(self, words: str, script: list[Reply]) -> str:
        """Returns words that make a model answer by the script, one reply for each request."""
        name = f"k{next(self._numbers)}"
        self._scripts[name] = deque(script)
        return f"{words} (script {name})"

    def reply(self, request: RecordedRequest) -> ScriptedReply:
        """Returns the next reply of the script that the request names last."""
        api = API_OF_PATH[request.path]
        self.refusals += refusals(api, request.body)
        names = _MARK.findall(json.dumps(request.body))
        script = self._scripts[names[-1]] if names else None
        reply = script.popleft() if script else Reply((FINE,))
        hold = Hold(lambda: self._held.append(Held(hold, request)))
        return reply.on_the_wire(api, hold)

    def held(self) -> list[Held]:
        """Returns the answers that are held back, the oldest first."""
        self._held = [held for held in self._held if held.is_awaited]
        return list(self._held)

    def end(self) -> None:
        """Empties all scripts: every further answer is short and in order."""
        for script in self._scripts.values():
            script.clear()


def refusals(api: str, body: dict[str, Any]) -> list[str]:
    """Returns the rules of its API that a request breaks, whether it goes on with a paused answer or not."""
    found = CHECKS[api](body)
    if found and api == "anthropic":
        found = check_anthropic(body, continues_pause=True)
    return [f"{api}: {one}" for one in found]
