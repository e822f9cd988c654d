"""What surely fits is judged by bytes, and never wrongly."""

from support.journeys import read

from proxy.exchange.attempts.sure_fit import surely_stays
from rules.policy import Policy

POLICY = Policy(context_window=8000, completion_reserve=1000)


def test_a_short_text_surely_stays_and_a_long_one_does_not() -> None:
    assert surely_stays(read([{"role": "user", "content": "hi"}]), POLICY)
    assert not surely_stays(read([{"role": "user", "content": "hi " * 4000}]), POLICY)


def test_an_image_or_an_escape_is_never_sure() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}
    assert not surely_stays(read([{"role": "user", "content": [image]}]), POLICY)
    assert not surely_stays(read([{"role": "user", "content": "\x01"}]), POLICY)
