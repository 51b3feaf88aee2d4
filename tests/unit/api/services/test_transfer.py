"""TransferService: what an import may ask for."""

import pytest

from opencode.transfer import transfer_pb2 as pb
from turnwire.api.services.transfer import MAX_OPTIONS, import_request
from turnwire.domain.errors import InvalidRequest


def test_an_import_has_a_bounded_number_of_options() -> None:
    """A format has few; they are kept with the request while it runs."""
    options = {f"option{number}": "x" for number in range(MAX_OPTIONS)}
    assert import_request(pb.ImportSessionsRequest(upload_id="upl_1", options=options)).options == options
    with pytest.raises(InvalidRequest) as caught:
        import_request(pb.ImportSessionsRequest(upload_id="upl_1", options={**options, "further": "x"}))
    assert [(one.field, one.reason, one.limit) for one in caught.value.violations] == [
        ("options", "TOO_MANY", MAX_OPTIONS)
    ]
