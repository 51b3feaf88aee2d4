"""PermissionService: the words of the contract reach the core, and its requests reach the client."""

import pytest

from opencode.tool import tool_pb2 as pb
from tests.support.fakes.domain_values import make_permission
from turnwire.api.services.tools import PermissionService
from turnwire.api.wire.answers import tools
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.principal import BUILT_IN, Principal
from turnwire.ports.pages import Page, PermissionPage


class FakePermissions:
    """Remembers answers and has one open request in each session."""

    def __init__(self) -> None:
        """Begins without answers."""
        self.answers: list[tuple[str, str, PermissionAnswer]] = []

    async def respond(
        self, principal: Principal, session_id: str, permission_id: str, answer: PermissionAnswer
    ) -> None:
        """Remembers the answer."""
        self.answers.append((session_id, permission_id, answer))

    async def open(self, principal: Principal, session_id: str, page: Page) -> PermissionPage:
        """Returns the open ones; a page and what it was asked with as the token of the next."""
        found = tuple(make_permission(f"per_{name}", name) for name in ("a", "b") if session_id in ("", name))
        return PermissionPage(found[: page.size], f"{page.size} after {page.token!r}")


async def listed(**fields: object) -> pb.ListPermissionsResponse:
    """Returns the answer to a request with these fields."""
    service = PermissionService(FakePermissions())  # type: ignore[arg-type]
    answer = await service.ListPermissions(BUILT_IN, pb.ListPermissionsRequest(**fields))
    return pb.ListPermissionsResponse.FromString(answer)


@pytest.mark.parametrize(
    ("word", "response"),
    [
        ("approve", PermissionChoice.ONCE),
        ("once", PermissionChoice.ONCE),
        ("always", PermissionChoice.ALWAYS),
        ("reject", PermissionChoice.REJECT),
    ],
)
async def test_an_answer_is_handed_on(word: str, response: PermissionChoice) -> None:
    """Each of the four words, with the reason."""
    permissions = FakePermissions()
    service = PermissionService(permissions)  # type: ignore[arg-type]
    request = pb.PermissionResponse(session_id="s", permission_id="p", response=word, reason="because")
    assert await service.RespondToPermission(BUILT_IN, request) == pb.RespondToPermissionResponse()
    assert permissions.answers == [("s", "p", PermissionAnswer(response, "because"))]


async def test_open_requests_are_listed() -> None:
    """Of one session, or of all."""
    both = [tools.permission(make_permission(f"per_{name}", name)) for name in ("a", "b")]
    assert list((await listed()).permissions) == both
    assert list((await listed(session_id="b")).permissions) == both[1:]
    page = await listed(page_size=1, page_token="t")
    assert (list(page.permissions), page.next_page_token) == (both[:1], "1 after 't'")
    assert (await listed()).next_page_token == "100 after ''"
