"""Subscribers hear of each request."""

from support.events import make_event

from proxy.account.history.live import MAX_WAITING, Live
from proxy.account.history.turn import Turn

TURN = Turn(make_event())


async def test_all_subscribers_hear_of_a_request():
    live = Live()
    with live.subscribing() as one, live.subscribing() as two:
        live.publish(TURN)
        assert await one.take(5) == await two.take(5) == ([TURN], False)
        assert await one.take(0) == ([], False)
    assert len(live) == 0


async def test_who_does_not_keep_up_is_told_once():
    """What comes after the loss is kept again."""
    live = Live()
    with live.subscribing() as subscriber:
        for _ in range(MAX_WAITING + 3):
            live.publish(TURN)
        assert await subscriber.take(5) == ([TURN] * 2, True)
        assert await subscriber.take(0) == ([], False)


async def test_closing_wakes_all():
    live = Live()
    with live.subscribing() as subscriber:
        live.close()
        assert await subscriber.take(60) == ([], False)
        assert subscriber.is_closed
