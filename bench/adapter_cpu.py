"""`python -m bench.adapter_cpu ADDRESS MODEL DELTAS`: processor time of a provider's adapter, or of reading its bytes.

Prints two numbers: microseconds a delta through `OpenAIChatProvider`, and through a bare aiohttp client.
"""

import sys
import time

import aiohttp

from bench.loop import run
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, Part, Text
from turnwire.domain.limits import Limits
from turnwire.ports.clock import utc_now
from turnwire.ports.provider import ProviderRequest, TextDelta
from turnwire.providers.openai_chat.provider import OpenAIChatProvider
from turnwire.providers.settings import ProviderSettings


async def measure(address: str, model: str, deltas: int) -> tuple[float, float]:
    """Returns microseconds a delta: through the adapter, and through a bare client.

    Raises:
        RuntimeError: not all deltas arrived.
    """
    base_url = f"http://{address}/v1"
    provider = OpenAIChatProvider("local", ProviderSettings(kind="openai_chat", base_url=base_url), "", Limits())
    await _through_adapter(provider, "deltas-10-0")  # first use imports
    before = time.process_time()
    found = await _through_adapter(provider, model)
    adapter = time.process_time() - before
    await provider.aclose()
    before = time.process_time()
    await _through_aiohttp(base_url, model)
    bare = time.process_time() - before
    if found != deltas:
        raise RuntimeError(f"{found} of {deltas} deltas arrived")
    return adapter / deltas * 1e6, bare / deltas * 1e6


async def _through_adapter(provider: OpenAIChatProvider, model: str) -> int:
    now = utc_now()
    message = Message(
        message_id="msg",
        session_id="ses",
        type=MessageType.USER,
        status=MessageStatus.COMPLETE,
        created_at=now,
        updated_at=now,
        parts=(Part(part_id="prt", index=0, content=Text("go")),),
    )
    request = ProviderRequest(model_id=model, system="", messages=(message,))
    stream = provider.stream(provider.writer().prepare(request))
    # the adapter joins what comes in one read; each delta has its moment between two of these
    return sum([item.text.count("@") async for item in stream if isinstance(item, TextDelta)]) // 2


async def _through_aiohttp(base_url: str, model: str) -> None:
    body = {"model": model, "messages": [], "stream": True}
    async with aiohttp.ClientSession() as session, session.post(f"{base_url}/chat/completions", json=body) as answer:
        async for _ in answer.content.iter_any():
            pass


if __name__ == "__main__":
    print(*run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
