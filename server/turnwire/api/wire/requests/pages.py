"""Requests for a page of a list, checked for form."""

from turnwire.api.wire.requests.checks import Checks
from turnwire.ports.pages import Page

DEFAULT_PAGE_SIZE = 100


def page(page_size: int, page_token: str, *, newest_first: bool = False, default: int | None = None) -> Page:
    """Returns which page to read; size 0 is the default, where None reads all."""
    checks = Checks()
    size = checks.page_size(page_size) or default
    if page_token and size is None:
        checks.fail("page_token", "needs a page_size")
    checks.done()
    return Page(size=size, token=page_token, newest_first=newest_first)
