"""opencode.tool: ToolService and PermissionService."""

from opencode.tool import tool_pb2 as pb
from turnwire.api.wire.answers import tools
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.tools import permission_answer, tool_result_request
from turnwire.core.use_cases.catalog import Catalog
from turnwire.core.use_cases.permissions import Permissions
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.principal import Principal


class ToolService:
    """Takes results of client tools and lists those of the server."""

    def __init__(self, tool_results: ToolResults, catalog: Catalog, tokens: ResumeTokens) -> None:
        """Takes the use cases."""
        self._tokens = tokens
        self._tool_results = tool_results
        self._catalog = catalog

    async def SubmitToolResult(
        self, principal: Principal, request: pb.SubmitToolResultRequest
    ) -> pb.SubmitToolResultResponse:
        """Stores a result."""
        session_id, call_id, result = tool_result_request(request)
        part, sequence = await self._tool_results.submit(principal, session_id, call_id, result)
        state = tools.tool_call(part.part_id, part.content) if isinstance(part.content, ToolUse) else None
        return pb.SubmitToolResultResponse(
            tool_call=state, sequence=sequence, resume_token=self._tokens.give(principal.tenant, session_id, sequence)
        )

    async def ListTools(self, principal: Principal, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """Returns the server's tools."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._catalog.tools(
            principal, request.session_id, size=page.size or pages.DEFAULT_PAGE_SIZE, token=page.token
        )
        return tools.tools(found)


class PermissionService:
    """Takes answers to permission requests and lists the open ones."""

    def __init__(self, permissions: Permissions) -> None:
        """Takes the use cases."""
        self._permissions = permissions

    async def RespondToPermission(
        self, principal: Principal, request: pb.PermissionResponse
    ) -> pb.RespondToPermissionResponse:
        """Records an answer."""
        session_id, permission_id, answer = permission_answer(request)
        await self._permissions.respond(principal, session_id, permission_id, answer)
        return pb.RespondToPermissionResponse()

    async def ListPermissions(
        self, principal: Principal, request: pb.ListPermissionsRequest
    ) -> pb.ListPermissionsResponse:
        """Returns the open requests."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found, token = await self._permissions.open(
            principal, request.session_id, size=page.size or pages.DEFAULT_PAGE_SIZE, token=page.token
        )
        return pb.ListPermissionsResponse(permissions=map(tools.permission, found), next_page_token=token)
