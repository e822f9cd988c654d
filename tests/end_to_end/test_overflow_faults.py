"""A refusal for length, and the faults of the second attempt.

Law: the client sees the result of the second attempt, and there is no third attempt. A refusal with absurd numbers does
not affect later requests.
"""

import orjson
import pytest
from support.client import CHAT, SMALL
from support.leaks import Leaks, read_sample
from upstreams.faults import FAULTS, FULL, LONG, Passed, ask, check_seen
from upstreams.faulty import Act, Connection, say

pytestmark = pytest.mark.usefixtures("quiet")
SETTINGS = ("defaults.completion_reserve=1000", "defaults.overflow_strategy=prune")
REFUSED = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: "


def write_refusal(limit: str, requested: str = "15000") -> bytes:
    """An error that refuses a prompt for its length."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {requested} tokens."
    )
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return orjson.dumps({"error": error})


def refuse(body: bytes) -> Act:
    """Refuse every request."""
    return say(f"{REFUSED}{len(body)}\r\n\r\n".encode() + body)


def refuse_once(then: Act) -> Act:
    """Refuse the first attempt, and do `then` for the second."""
    acts = iter((refuse(write_refusal("8000")), then))

    async def act(connection: Connection) -> None:
        await next(acts)(connection)

    return act


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_of_the_second_attempt_is_told_or_passed_on(fault, raw, start_proxy):
    """The client sees the same as for a fault of the first attempt, and the proxy holds nothing afterwards."""
    raw_settings = (f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={fault.read_seconds}")
    proxy = await start_proxy(*SETTINGS, "defaults.context_window=128000", *raw_settings)
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, CHAT))[0] == 200
    await leaks.mark()
    for number, stream in enumerate((False, True)):
        accepted, raw.act = raw.accepted, refuse_once(fault.act)
        # Each model is new, so its window is not learned yet.
        await check_seen(fault.seen, proxy, LONG | {"model": f"m{number}"} | ({"stream": True} if stream else {}))
        assert raw.accepted - accepted == 2
    await leaks.check()


@pytest.mark.parametrize(
    ("limit", "requested"),
    [("1", "15000"), ("0", "0"), ("-5", "-15000"), ("255", "3"), ("1000000000000", "15000"), ("8000", "1000000000000"),
     ("9" * 400, "9" * 400), ("7999.5", "nan"), ("", "")],
)  # fmt: skip
async def test_absurd_numbers_spoil_nothing(limit, requested, raw, start_proxy):
    """There are at most two attempts, and the last refusal is unchanged. trimtab serves the next requests."""
    proxy = await start_proxy(*SMALL, *SETTINGS, f"upstream.base_url={raw.url}")
    refusal, good = write_refusal(limit, requested), raw.act
    raw.act = refuse(refusal)
    await check_seen(Passed(400, refusal), proxy, LONG)
    assert raw.accepted <= 2
    raw.act = good
    for body in (CHAT, LONG, LONG | {"stream": True}):
        await check_seen(FULL, proxy, body)
    assert read_sample(proxy, "trimtab_fail_open_total") == 0
