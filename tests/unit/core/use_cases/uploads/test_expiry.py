"""What has expired is looked for at the start and every minute, until nothing is found."""

from datetime import timedelta

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.loop import elapse, settled
from tests.support.fakes.uploads import FakeUploads
from turnwire.core.use_cases.uploads.expiry import INTERVAL_SECONDS, UploadExpiry
from turnwire.domain.errors import ShuttingDown, StorageFull

MINUTE = timedelta(seconds=INTERVAL_SECONDS)


async def test_looks_go_on_until_nothing_is_found() -> None:
    """Each removes a bounded number; one that fails does not end them."""
    fake = FakeUploads(expired=[100, 7, 0, StorageFull("no space"), ShuttingDown(), 1])
    expiry = UploadExpiry(make_environment(FakeStore(uploads=fake)))
    expiry.start()
    await settled()
    assert len(fake.looked_at) == 3
    await elapse(MINUTE)
    assert len(fake.looked_at) == 4
    await elapse(MINUTE)
    assert len(fake.looked_at) == 5
    await elapse(MINUTE)
    assert len(fake.looked_at) == 7
    await expiry.aclose()
    await elapse(MINUTE)
    assert len(fake.looked_at) == 7
    await expiry.aclose()


async def test_the_stop_cancels_no_change_of_the_store() -> None:
    """The store's own future is not the task's to cancel."""
    fake = FakeUploads(automatic=False)
    expiry = UploadExpiry(make_environment(FakeStore(uploads=fake)))
    expiry.start()
    await settled()
    await expiry.aclose()
    [(future, _)] = fake.waiting
    assert not future.done()
