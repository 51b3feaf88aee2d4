"""opencode.tool: ToolService and PermissionService."""

from opencode.tool import tool_pb2 as pb
from turnwire.core.conversations import Conversations
from turnwire.core.toolbox import ToolCatalog
from turnwire.domain.errors import PermissionRequestNotFound
from turnwire.domain.messages import ToolUse
from turnwire.rpc import from_proto, to_proto
from turnwire.rpc.checks import Checks

ANSWERS = ("approve", "once", "always", "reject")


class ToolService:
    """Takes results of client tools and lists those of the server."""

    def __init__(self, conversations: Conversations, catalog: ToolCatalog) -> None:
        """Takes the use cases."""
        self._conversations = conversations
        self._catalog = catalog

    async def SubmitToolResult(self, request: pb.SubmitToolResultRequest) -> pb.SubmitToolResultResponse:
        """Stores a result."""
        session_id, call_id, result = from_proto.tool_result_request(request)
        part, sequence = await self._conversations.submit_tool_result(session_id, call_id, result)
        state = to_proto.tool_call(part.part_id, part.content) if isinstance(part.content, ToolUse) else None
        return pb.SubmitToolResultResponse(tool_call=state, sequence=sequence)

    async def ListTools(self, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """Returns the server's tools."""
        return to_proto.tools(await self._catalog.list(request.session_id))


class PermissionService:
    """Takes answers to permission requests. No tool of this server asks for permission, so none is ever open."""

    async def RespondToPermission(self, request: pb.PermissionResponse) -> pb.RespondToPermissionResponse:
        """Refuses the answer: there is no such request."""
        checks = Checks()
        checks.required("session_id", request.session_id)
        checks.required("permission_id", request.permission_id)
        checks.one_of("response", request.response, ANSWERS, ", ".join(ANSWERS))
        checks.done()
        raise PermissionRequestNotFound(request.permission_id)
