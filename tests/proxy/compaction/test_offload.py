"""Where work is done."""

import threading

import pytest

from proxy.compaction.offload import INLINE_BYTES, run_bounded, run_work
from rules.results.work import LargeWorkError


@pytest.mark.parametrize("in_thread", [True, False])
async def test_work_is_done_where_it_belongs(in_thread: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """In a thread or on the loop; its result and its errors come back."""
    worker = await run_work(threading.current_thread, in_thread=in_thread)
    assert (worker is not threading.current_thread()) == in_thread
    with pytest.raises(ZeroDivisionError):
        await run_work(lambda: 1 // 0, in_thread=in_thread)


@pytest.mark.parametrize(("chars", "in_thread", "tries"), [(9, False, 1), (9, True, 1), (INLINE_BYTES + 1, False, 2)])
async def test_work_that_turns_out_to_be_large_is_done_in_a_thread(
    chars: int,
    in_thread: bool,  # noqa: FBT001 - a parameter of pytest
    tries: int,
) -> None:
    """Begun on the loop with a bound, and again in a thread without; small work stays where it was begun."""
    threads = []

    def work(*, max_chars: int | None) -> int:
        threads.append(threading.current_thread())
        if max_chars is not None and chars > max_chars:
            raise LargeWorkError
        return chars

    assert await run_bounded(work, in_thread=in_thread) == chars
    assert len(threads) == tries
    assert (threads[-1] is threading.current_thread()) == (tries == 1 and not in_thread)
