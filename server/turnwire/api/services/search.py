"""opencode.search.SearchService."""

from opencode.message import content_pb2
from opencode.search import search_pb2 as pb
from turnwire.api.wire.answers import times
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.use_cases.searches import MessageSearches
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.principal import Principal
from turnwire.domain.searching.hits import Search, SearchHit, SearchOrder
from turnwire.domain.searching.queries import parse_query

_ORDERS = {
    pb.SEARCH_ORDER_UNSPECIFIED: SearchOrder.RANK,
    pb.SEARCH_ORDER_RANK: SearchOrder.RANK,
    pb.SEARCH_ORDER_NEWEST: SearchOrder.NEWEST,
    pb.SEARCH_ORDER_OLDEST: SearchOrder.OLDEST,
}
_NUMBERS = {type: content_pb2.MessageType.Value(f"MESSAGE_TYPE_{type.name}") for type in MessageType}
_TYPES = {number: type for type, number in _NUMBERS.items()}


class SearchService:
    """Method by method as the contract describes them."""

    def __init__(self, searches: MessageSearches) -> None:
        """Takes the use case."""
        self._searches = searches

    async def SearchMessages(
        self, principal: Principal, request: pb.SearchMessagesRequest
    ) -> pb.SearchMessagesResponse:
        """Returns a page of hits."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        asked, size = _asked(request), page.size or pages.DEFAULT_PAGE_SIZE
        found, token = await self._searches.search(principal, asked, size=size, token=page.token)
        return pb.SearchMessagesResponse(
            hits=map(_hit, found.hits), next_page_token=token, incomplete=not found.is_complete
        )


def _asked(request: pb.SearchMessagesRequest) -> Search:
    checks = Checks()
    checks.required("query", request.query)
    for index, number in enumerate(request.types):
        if number not in _TYPES:
            checks.fail(f"types[{index}]", "is not a type of this server")
    if request.order not in _ORDERS:
        checks.fail("order", "is not an order of this server")
    start = checks.moment("start_time", request.start_time) if request.HasField("start_time") else None
    end = checks.moment("end_time", request.end_time) if request.HasField("end_time") else None
    checks.done()
    return Search(
        query=parse_query(request.query),
        session_ids=tuple(request.session_ids),
        types=tuple(dict.fromkeys(_TYPES[number] for number in request.types)),
        senders=tuple(request.senders),
        start=start,
        end=end,
        order=_ORDERS[request.order],
    )


def _hit(hit: SearchHit) -> pb.SearchHit:
    return pb.SearchHit(
        session_id=hit.session_id,
        session_title=hit.session_title,
        message_id=hit.message_id,
        part_index=hit.part_index,
        type=_NUMBERS[hit.type],
        create_time=times.timestamp(hit.created_at),
        sender_name=hit.sender_name,
        snippet=(pb.SnippetPiece(text=piece.text, is_match=piece.is_match) for piece in hit.snippet),
    )
