"""All services of the contract, each with what carries it out, for any listener."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from opencode.agent import agent_pb2
from opencode.event import event_pb2
from opencode.file import file_pb2, upload_pb2
from opencode.message import message_pb2
from opencode.provider import provider_pb2
from opencode.question import question_pb2
from opencode.search import search_pb2
from opencode.server import server_pb2
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from opencode.transfer import transfer_pb2
from opencode.turn import turn_service_pb2
from opencode.usage import usage_pb2
from turnwire.api.gate import StreamingMethod, UnaryMethod
from turnwire.api.request_sizes import max_request_bytes
from turnwire.api.request_values import counted
from turnwire.api.rights import LEAST_ROLE
from turnwire.api.services.catalog import AgentService, ProviderService, ServerService
from turnwire.api.services.events import EventService
from turnwire.api.services.files import FileService, UploadService
from turnwire.api.services.messages import MessageService
from turnwire.api.services.questions import QuestionService
from turnwire.api.services.search import SearchService
from turnwire.api.services.sessions import SessionService
from turnwire.api.services.tools import PermissionService, ToolService
from turnwire.api.services.transfer import TransferService
from turnwire.api.services.turns import TurnService
from turnwire.api.services.usage import UsageService
from turnwire.core.use_cases import UseCases
from turnwire.domain.principal import Role

OFFLOAD_BYTES = 65_536
"""Size from which requests are counted and parsed on a worker thread."""


class Service(NamedTuple):
    """A service. Its servicer has a method of the name of each method of the contract.

    Called with the principal and the request, that is a coroutine function, or for a stream an async generator
    function. It returns or yields messages or their bytes: pages and batches were framed when they were stored.
    """

    descriptor: ServiceDescriptor
    servicer: object

    def methods(self) -> Mapping[str, UnaryMethod | StreamingMethod]:
        """Returns the methods by their short names. Raises KeyError: `LEAST_ROLE` has no row for one."""
        return {method.name: self._method(method) for method in self.descriptor.methods}

    def _method(self, method: MethodDescriptor) -> UnaryMethod | StreamingMethod:
        name, least_role = method.full_name, LEAST_ROLE[method.full_name]
        parse, run = counted(GetMessageClass(method.input_type)), getattr(self.servicer, method.name)
        kind = StreamingMethod if method.server_streaming else UnaryMethod
        size = max_request_bytes(name, is_open=least_role is Role.ANONYMOUS)
        return kind(name, least_role, parse, run, size, OFFLOAD_BYTES)


def all_services(use: UseCases, offered_auth: Sequence[str]) -> tuple[Service, ...]:
    """Returns the services. `offered_auth` names the ways to sign in."""
    message, tool = message_pb2.DESCRIPTOR.services_by_name, tool_pb2.DESCRIPTOR.services_by_name
    session = session_pb2.DESCRIPTOR.services_by_name["SessionService"]
    tokens = use.watches.tokens
    return (
        Service(message["MessageService"], MessageService(use.conversations, use.watches, use.explainer)),
        Service(file_pb2.DESCRIPTOR.services_by_name["FileService"], FileService(use.files)),
        Service(upload_pb2.DESCRIPTOR.services_by_name["UploadService"], UploadService(use.uploads)),
        Service(session, SessionService(use.sessions, use.forks, use.paths, tokens)),
        Service(
            turn_service_pb2.DESCRIPTOR.services_by_name["TurnService"],
            TurnService(use),
        ),
        Service(event_pb2.DESCRIPTOR.services_by_name["EventService"], EventService(use.watches, use.conflated)),
        Service(tool["ToolService"], ToolService(use.tool_results, use.tool_leases, use.catalog, tokens)),
        Service(tool["PermissionService"], PermissionService(use.permissions)),
        Service(question_pb2.DESCRIPTOR.services_by_name["QuestionService"], QuestionService(use.questions, tokens)),
        Service(transfer_pb2.DESCRIPTOR.services_by_name["TransferService"], TransferService(use.exports, use.imports)),
        Service(usage_pb2.DESCRIPTOR.services_by_name["UsageService"], UsageService(use.usage)),
        Service(search_pb2.DESCRIPTOR.services_by_name["SearchService"], SearchService(use.searches)),
        Service(provider_pb2.DESCRIPTOR.services_by_name["ProviderService"], ProviderService(use.catalog)),
        Service(agent_pb2.DESCRIPTOR.services_by_name["AgentService"], AgentService(use.catalog)),
        Service(server_pb2.DESCRIPTOR.services_by_name["ServerService"], ServerService(use.catalog, offered_auth)),
    )
