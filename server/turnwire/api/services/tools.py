"""opencode.tool: ToolService and PermissionService."""

from opencode.tool import tool_pb2 as pb
from turnwire.api.wire.answers import tools
from turnwire.api.wire.long import converted, framed
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.tools import (
    claim_request,
    open_calls_request,
    permission_answer,
    release_request,
    renew_request,
    tool_result_request,
)
from turnwire.core.use_cases.asking import Permissions
from turnwire.core.use_cases.catalog import Catalog
from turnwire.core.use_cases.tool_leases import ToolLeases
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.principal import Principal


class ToolService:
    """Takes results of client tools and lists those of the server."""

    def __init__(self, tool_results: ToolResults, leases: ToolLeases, catalog: Catalog, tokens: ResumeTokens) -> None:
        """Takes the use cases."""
        self._tokens = tokens
        self._leases = leases
        self._tool_results = tool_results
        self._catalog = catalog

    async def SubmitToolResult(
        self, principal: Principal, request: pb.SubmitToolResultRequest
    ) -> pb.SubmitToolResultResponse:
        """Stores a result."""
        session_id, call_id, result = await converted(tool_result_request, request)
        part, sequence = await self._tool_results.submit(principal, session_id, call_id, result)
        return pb.SubmitToolResultResponse(
            tool_call=tools.tool_call_of(part),
            sequence=sequence,
            resume_token=self._tokens.give(principal.tenant, session_id, sequence),
        )

    async def ListOpenToolCalls(self, principal: Principal, request: pb.ListOpenToolCallsRequest) -> bytes:
        """Returns a page of open calls."""
        names, page = open_calls_request(request)
        found = await self._leases.open_calls(principal, request.session_id, names, page)
        rest = pb.ListOpenToolCallsResponse(next_page_token=found.next_token)
        return await framed(found.calls, tools.open_call, rest)

    async def ClaimToolCall(self, principal: Principal, request: pb.ClaimToolCallRequest) -> pb.ClaimToolCallResponse:
        """Claims a call."""
        call = tools.tool_call_of(await self._leases.claim(principal, claim_request(request)))
        return pb.ClaimToolCallResponse(tool_call=call, lease=call.lease)

    async def RenewToolCall(self, principal: Principal, request: pb.RenewToolCallRequest) -> pb.RenewToolCallResponse:
        """Extends a lease."""
        call = tools.tool_call_of(await self._leases.renew(principal, renew_request(request)))
        return pb.RenewToolCallResponse(tool_call=call, lease=call.lease)

    async def ReleaseToolCall(
        self, principal: Principal, request: pb.ReleaseToolCallRequest
    ) -> pb.ReleaseToolCallResponse:
        """Ends a lease."""
        part = await self._leases.release(principal, release_request(request))
        return pb.ReleaseToolCallResponse(tool_call=tools.tool_call_of(part))

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

    async def ListPermissions(self, principal: Principal, request: pb.ListPermissionsRequest) -> bytes:
        """Returns a page of the open requests."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._permissions.open(principal, request.session_id, page)
        rest = pb.ListPermissionsResponse(next_page_token=found.next_token)
        return await framed(found.permissions, tools.permission, rest)
