"""The page of metrics: how often it is rendered, and how old it may be."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from trimtab.proxy.telemetry.metrics import MetricsPages


class Rendering:
    """Renders numbered pages; `rendered` are their forms."""

    def __init__(self) -> None:
        self.rendered: list[bool] = []

    def __call__(self, *, as_open_metrics: bool) -> bytes:
        """The next page."""
        self.rendered.append(as_open_metrics)
        return b"%d" % len(self.rendered)


@pytest.fixture
def ticks() -> Iterator[float]:
    """A clock that goes on by half a second whenever it is read."""
    return (0.5 * number for number in count())


async def test_many_readers_share_a_page(ticks: Iterator[float]) -> None:
    """Those that come while one is rendered get the next one, all the same."""
    render = Rendering()
    pages = MetricsPages(render, clock=lambda: next(ticks))
    bodies = await asyncio.gather(*(pages.read() for _ in range(50)))
    assert len(render.rendered) <= 2
    assert set(bodies) <= {b"1", b"2"}


async def test_a_page_is_never_older_than_its_request(ticks: Iterator[float], monkeypatch) -> None:
    """Readers one after another get a page each, at most one in a second. Both forms are rendered once."""
    waited: list[float] = []
    plain = asyncio.sleep
    monkeypatch.setattr("asyncio.sleep", lambda seconds: waited.append(seconds) or plain(0))
    render = Rendering()
    pages = MetricsPages(render, clock=lambda: next(ticks))
    assert [await pages.read() for _ in range(3)] == [b"1", b"2", b"3"]
    assert waited == [float("-inf"), pytest.approx(0.0), pytest.approx(0.0)]
    assert await pages.read(as_open_metrics=True) == b"4"
    assert render.rendered == [False, False, False, True]


async def test_a_failed_rendering_is_no_page(ticks: Iterator[float]) -> None:
    """The next reader gets another one."""
    faults = iter([OSError()])

    def render(*, as_open_metrics: bool) -> bytes:
        for fault in faults:
            raise fault
        return b"page"

    pages = MetricsPages(render, clock=lambda: next(ticks))
    with pytest.raises(OSError, match=r"^$"):
        await pages.read()
    assert await pages.read() == b"page"
