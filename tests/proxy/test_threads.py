"""Where work is done."""

import threading

import pytest

from proxy.threads import run_work


@pytest.mark.parametrize("in_thread", [True, False])
async def test_work_is_done_where_it_belongs(in_thread: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """In a thread or on the loop; its result and its errors come back."""
    worker = await run_work(threading.current_thread, in_thread=in_thread)
    assert (worker is not threading.current_thread()) == in_thread
    with pytest.raises(ZeroDivisionError):
        await run_work(lambda: 1 // 0, in_thread=in_thread)
