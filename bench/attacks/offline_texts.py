"""Texts that the offline models read, line by line and word by word."""

import asyncio
from functools import partial

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import again, caller, surely
from opencode.message import message_pb2
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo

_TEXTS = {
    "words": "a " * 7_000_000,
    "lines": "a\n" * 7_000_000,
    "directives": "/flaky x 1\n" * 1_000_000,
    "empty_lines": "\n" * 14_000_000 + "a",
    "tool_calls": "/tool x {}\n" * 1_000_000,
}


async def _send(target: Target, name: str) -> None:
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text=_TEXTS[name]))
    sent = 0
    model = ModelSelection(provider=ProviderInfo(id="offline"), model_id="echo")
    async with caller(target) as one:

        async def send() -> None:
            nonlocal sent
            await one.messages.SendMessage(message_pb2.SendMessageRequest(parts=[part], model=model))
            sent += 1

        try:
            await asyncio.gather(*(again(send) for _ in range(3)))
        finally:
            print(f"sent: {sent}")


async def _turns(target: Target) -> None:
    """As many answers at once as are asked for, without pauses."""
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text="/words 100000"))
    async with caller(target) as one:
        request = message_pb2.SendMessageRequest(parts=[part])
        await asyncio.gather(*(surely(lambda: one.messages.SendMessage(request)) for _ in range(300)))
        await asyncio.Event().wait()


ATTACKS = (
    Attack("offline_turns", "300 answers of 100,000 words", _turns),
    *(
        Attack(f"offline_{name}", f"14 MB of {name.replace('_', ' ')} for offline/echo", partial(_send, name=name))
        for name in _TEXTS
    ),
)
