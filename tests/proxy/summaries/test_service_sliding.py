"""Clients that slide a window of their own."""

import pytest
from support.builders import assistant, conversation, result, user
from support.client import SMALL, post, settle
from support.sessions import make_session

from trimtab.proxy.summaries.service import SUMMARIES, SlidingWatch
from trimtab.rules.conversation import Message
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.summary.request import SummaryRequest
from trimtab.rules.window.state import Window

SETTINGS = (*SMALL, "defaults.overflow_strategy=summarize", "defaults.summary.max_tokens=300")


def name_all(messages: list[dict[str, object]], name: str) -> list[dict[str, object]]:
    return [message | {"content": f"{name}: {message['content']}"} for message in messages]


async def send(client, proxy, messages: list[dict[str, object]]) -> str:
    """Send one request, and wait for the summary that it may have started. Returns its decisions."""
    response, _ = await post(client, proxy.url + "/v1/chat/completions", {"model": "m", "messages": messages})
    assert response.status == 200
    await settle(proxy)
    return response.headers.get("x-trimtab-decisions", "")


async def ask(client, proxy, messages: list[dict[str, object]]) -> str:
    return (await send(client, proxy, messages)).split(";")[0]


async def test_a_client_that_drops_its_beginning_gets_digests(client, upstream, start_proxy):
    """After three summaries that were never found again, no fourth is paid for. Other clients get summaries."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(80, result_words=200)["messages"][:-1]
    slid = [[system, task, *steps[start : start + 70]] for start in range(0, 20, 2)]
    assert [await ask(client, proxy, messages) for messages in slid] == ["summarise"] * 3 + ["digest"] * 7
    assert len(upstream.summaries) == 3
    assert (
        await ask(client, proxy, name_all(make_session(60, result_words=300)["messages"][:-1], "other")) == "summarise"
    )


async def test_a_client_that_stops_sliding_has_summaries_again(client, upstream, start_proxy):
    """As soon as its transcript grows, the same text is found several times."""
    proxy = await start_proxy(*SETTINGS)
    system, task, *steps = make_session(150, result_words=260)["messages"][:-1]
    slid = [await ask(client, proxy, [system, task, *steps[start : start + 70]]) for start in range(0, 12, 2)]
    assert slid[-1] == "digest"
    written = len(upstream.summaries)
    await send(client, proxy, [system, task, *steps[12:102]])
    assert len(upstream.summaries) <= written + 1  # three are enough to tell; one may be written ahead
    rules = [await ask(client, proxy, [system, task, *steps[10:stop]]) for stop in range(102, 220, 2)]
    assert rules[-1] == "summarise"


SAID = tuple(assistant(f"answer {number}") for number in range(8))


def _ask_for(key: str, span: tuple[Message, ...]) -> SummaryRequest:
    return SummaryRequest(key, len(span), None, None, (), span, 300)


def _plan(messages: tuple[Message, ...], *hashes: bytes) -> Plan:
    said = conversation(*messages)
    return Plan(said, said, said, 0, hashes, Window(), None, None, (), 0, 0, 0, 0)


def _watch(*keys: str) -> SlidingWatch:
    """A watch that has noted a summary under each key; each covers one answer more."""
    watch = SlidingWatch()
    for number, key in enumerate(keys):
        watch.note("client", _ask_for(key, SAID[: number + 2]))
    return watch


def test_a_client_slides_if_its_transcript_holds_what_was_covered_but_under_other_beginnings() -> None:
    """The text of the last covered messages tells; results do not count."""
    watch = _watch("aa", "bb", "cc")
    assert watch.slides("client", _plan(SAID, b"\xdd"))
    assert not watch.slides("other", _plan(SAID, b"\xdd"))
    assert not watch.slides("client", _plan(SAID, b"\xdd", b"\xbb"))  # one of them is found again
    assert not watch.slides("client", _plan(SAID[1:], b"\xdd"))  # the first one covered something else
    assert not _watch("aa", "bb").slides("client", _plan(SAID, b"\xdd"))
    assert not _watch("aa", "bb", "bb").slides("client", _plan(SAID, b"\xdd"))

    masked = SlidingWatch()
    for key in ("aa", "bb", "cc"):
        masked.note("client", _ask_for(key, (user("Go."), assistant("Yes."), result("c", "long"))))
    assert masked.slides("client", _plan((user("Go."), assistant("Yes."), result("c", "masked")), b"\xdd"))


def test_only_the_last_summaries_count() -> None:
    watch = _watch("aa", "bb", "cc", "dd")
    assert watch.slides("client", _plan(SAID, b"\xaa"))
    assert not watch.slides("client", _plan(SAID, b"\xdd"))


@pytest.mark.parametrize("between", [(), ("another",)])
def test_a_summary_that_is_used_several_times_shows_a_client_that_grows(between: tuple[str, ...]) -> None:
    """In a row or not. Once such a summary is the oldest and pushed out, the client may slide again."""
    watch, plan = _watch("aa", "bb", "cc"), _plan(SAID, b"\xff")
    for _ in range(SUMMARIES):
        assert watch.slides("client", plan)
        for key in (*between, "aa"):
            watch.use("client", _ask_for(key, SAID))
    assert not watch.slides("client", plan)
    watch.note("client", _ask_for("dd", SAID[:2]))
    assert watch.slides("client", plan)


def test_an_older_summary_that_is_found_several_times_in_a_row_shows_it_too() -> None:
    """Another one in between begins the count anew. Then all is forgotten."""
    watch, plan = _watch("aa", "bb", "cc"), _plan(SAID, b"\xff")
    found = ("old",) * (SUMMARIES - 1) + ("other",) + ("old",) * SUMMARIES
    for key in found:
        assert watch.slides("client", plan)
        watch.use("client", _ask_for(key, SAID))
    assert not watch.slides("client", plan)
    watch.note("client", _ask_for("dd", SAID[:2]))
    assert not watch.slides("client", plan)
