"""A refusal for length in the words of each server, and the faults of the second attempt.

Law: the client sees the result of the second attempt, and there is no third attempt. A refusal with absurd numbers does
not affect later requests.
"""

from itertools import cycle

import orjson
import pytest
from support.client import SMALL
from support.dialects.spoken.all_dialects import DIALECTS
from support.dialects.spoken.chat import CHAT
from support.leaks import Leaks, read_sample
from upstreams.faults import FULL, Passed, ask, check_seen, choose_faults, write_long, write_short
from upstreams.faulty import GOOD, Act, Connection, say

pytestmark = pytest.mark.usefixtures("quiet")
SETTINGS = ("defaults.completion_reserve=1000", "defaults.overflow_strategy=prune")
TOKENS, WINDOW = 15_000, 8000


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


def refuse(body: bytes, status: int = 400, *, is_stream: bool = False) -> Act:
    """Refuse every request."""
    kind = "text/event-stream" if is_stream else "application/json"
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return say(head.encode() + body)


def refuse_once(then: Act, first: Act) -> Act:
    """Refuse the first attempt by `first`, and do `then` for the second."""
    acts = iter((first, then))

    async def act(connection: Connection) -> None:
        await next(acts)(connection)

    return act


@pytest.mark.parametrize(
    ("dialect", "refusal", "stream"),
    [
        pytest.param(dialect, one, stream, id=f"{dialect}-{one.server}-{'stream' if stream else 'whole'}")
        for dialect in DIALECTS
        for one in {(one.told, one.is_stream, one.status): one for one in reversed(dialect.refusals)}.values()
        for stream in ((True,) if one.is_stream else (False, True))
    ],
)
async def test_a_refusal_in_the_words_of_any_server_is_never_seen(dialect, refusal, stream, raw, start_proxy):
    """The second attempt is valid, shorter and within the window that was told. The client sees only its answer."""
    proxy = await start_proxy(*SETTINGS, "defaults.context_window=20000", f"upstream.base_url={raw.url}")
    sent: list[bytes] = []

    async def answer(connection: Connection) -> None:
        await connection.read_request()
        sent.append(connection.body)
        connection.unread()
        if len(sent) == 1:
            await refuse(refusal.write(TOKENS, WINDOW), refusal.status, is_stream=refusal.is_stream)(connection)
        else:
            await say(GOOD)(connection)

    raw.act = answer
    body = write_long(dialect, **({"stream": True} if stream else {}))
    await check_seen(FULL, proxy, body, dialect)
    assert len(sent) == 2
    assert len(sent[1]) < len(sent[0])
    assert dialect.check_request(orjson.dumps(body), sent[1]) == []
    if refusal.told:
        assert len(sent[1]) / 4 < WINDOW
    assert read_sample(proxy, "trimtab_fail_open_total") == 0


@pytest.mark.parametrize(
    ("dialect", "fault"),
    list(zip(cycle(DIALECTS), choose_faults(), strict=False)),
    ids=lambda value: value.name,
)
async def test_a_fault_of_the_second_attempt_is_told_or_passed_on(dialect, fault, raw, start_proxy):
    """The client sees the same as for a fault of the first attempt, and the proxy holds nothing afterwards."""
    raw_settings = (f"upstream.base_url={raw.url}", f"upstream.read_timeout_seconds={fault.read_seconds}")
    proxy = await start_proxy(*SETTINGS, "defaults.context_window=128000", *raw_settings)
    leaks = Leaks(proxy, raw)
    assert (await ask(proxy.url, write_short(dialect), dialect.path))[0] == 200
    await leaks.mark()
    first = dialect.refusals[0]
    refusing = refuse(first.write(TOKENS, WINDOW), first.status)
    for number, more in enumerate(({}, {"stream": True})):
        accepted, raw.act = raw.accepted, refuse_once(fault.act, refusing)
        # Each model is new, so its window is not learned yet.
        await check_seen(fault.seen, proxy, write_long(dialect, model=f"m{number}", **more), dialect)
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
    await check_seen(Passed(400, refusal), proxy, write_long(CHAT))
    assert raw.accepted <= 2
    raw.act = good
    for body in (write_short(CHAT), write_long(CHAT), write_long(CHAT, stream=True)):
        await check_seen(FULL, proxy, body)
    assert read_sample(proxy, "trimtab_fail_open_total") == 0
