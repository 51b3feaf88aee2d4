"""A request is written on from the one before."""

import msgspec

from tests.support.models.provider_requests import PNG, message
from turnwire.domain.conversation.messages import File, Message
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.anthropic.request import AnthropicWriter


def showing(name: str) -> Message:
    """Returns a question with a picture."""
    file = File(sha256=name, size_bytes=len(PNG), mime="image/png", filename=f"{name}.png")
    return msgspec.structs.replace(message("user", file), message_id=f"msg_{name}")


def test_files_of_new_messages_are_asked_for() -> None:
    """Those that are written already are not read again; those that were not there are asked for until they are."""
    writer, said = AnthropicWriter("p", 1000), tuple(map(showing, "abc"))
    for count, files, missing in ((1, "a", "a"), (2, "", "b"), (3, "bc", "bc"), (3, "", "")):
        request = ProviderRequest(model_id="m", system="", messages=said[:count])
        assert writer.unwritten(request).files == set(missing)
        writer.prepare(msgspec.structs.replace(request, files=dict.fromkeys(files, PNG)))
