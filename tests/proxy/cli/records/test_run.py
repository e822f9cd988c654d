"""A whole replay; tests/end_to_end/test_replay.py compares it with a proxy's metrics."""

import itertools
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.builders import assistant, call, conversation, result, user
from support.client import SMALL, post, settle
from support.sessions import make_session, requests_of
from upstreams.recording import FakeUpstream, Recorded, completion, write_note

from trimtab.proxy.account.recordings.folder import list_files
from trimtab.proxy.cli.options import StoppedError
from trimtab.proxy.cli.records.run import (
    MAX_POINTS,
    Needed,
    Replay,
    Series,
    Tally,
    draw,
    find_identifiers,
)
from trimtab.proxy.cli.records.sums import VariantSums
from trimtab.proxy.cli.records.variants import ConfiguredVariants
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.rules.conversation import Message


def _replay(compactors: Compactors, folder: Path, *settings: str) -> tuple[Replay, list[dict[str, Any]]]:
    """Replay a folder as it was recorded, and with a configuration."""
    config = load_config(settings=settings, environment={}, is_online=False)
    ways = {"new": ConfiguredVariants(compactors, config)}
    replay = Replay(compactors, [VariantSums("recorded"), VariantSums("new")], ways)
    replay.read_recordings(list_files(folder), lambda _: None)
    return replay, [side.describe() for side in replay.variants]


async def _answer(recorded: Recorded, _: web.BaseRequest) -> web.StreamResponse:
    text = write_note("Parts were read.") if recorded.asks_for_summary else "All good."
    return completion(text, prompt_tokens=1000, completion_tokens=7)


async def _record(client: aiohttp.ClientSession, upstream: FakeUpstream, start_proxy: Any, folder: Path) -> None:
    """Record a session that is cut."""
    upstream.answer = _answer
    proxy = await start_proxy(*SMALL, f"record.dir={folder}")
    session = make_session(40)
    for messages in requests_of(session):
        body = {"model": "m", "messages": messages, "tools": session["tools"]}
        _ = await post(client, f"{proxy.url}/v1/chat/completions", body)
        await settle(proxy)
    await proxy.services.recordings.settle()


async def test_the_same_configuration_changes_nothing(client, upstream, start_proxy, compactors, tmp_path):
    """The recorded summaries fit their cuts, so that none stands in, and both sides cost the same."""
    await _record(client, upstream, start_proxy, tmp_path)
    replay, (recorded, new) = _replay(compactors, tmp_path, *SMALL, "prices={}")

    (before,), (after,) = recorded["models"], new["models"]
    same = ("requests", "original_tokens", "sent_tokens", "saved_tokens", "cuts", "sections", "moved_cuts")
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    assert before["moved_cuts"] > 0
    assert "summarise" in before["cuts"]
    assert after["stand_ins"] == replay.differing.number == 0
    # The others were written ahead for a cold cache, which a replay does not expect.
    assert 0 < after["summary_results"]["expected"] <= before["summary_results"]["written"]
    (unit,) = after["costs"]
    assert {arm: after["costs"][unit][arm] for arm in ("trimtab", "nothing", "sliding")} == {
        arm: before["costs"][unit][arm] for arm in ("trimtab", "nothing", "sliding")
    }
    assert len(replay.series.points) == before["requests"]


TALK = (
    user("look at src/app.py and 48213"),
    assistant("", call("a", arguments="src/lib.py")),
    result("a", "7204b2221a58"),
)
ANSWER = assistant("src/app.py, src/lib.py, 48213, 7204b2221a58 and src/new.py")


def tell(forwarded: tuple[Message, ...], *more: Message) -> Tally:
    """What a request needs of which these messages were forwarded, once the next one has come."""
    needed = Needed()
    needed.add("s", conversation(*TALK), {"way": conversation(*forwarded)})
    needed.add("s", conversation(*TALK, ANSWER, *more, user("go on")), {"way": conversation()})
    return needed.tallies["way"]


def test_needed_is_what_the_next_answer_names_and_the_conversation_held() -> None:
    """In texts, calls and results; kept is what is forwarded in some form."""
    tally = tell(TALK[:2])
    assert (tally.needed, tally.kept) == (4, 3)
    assert tell((user("Summary: 7204b2221a58"),)) == Tally(4, 1)
    assert find_identifiers("see OPS-48213, the answer is 42 and 1234, nothing else") == {"48213"}


def test_a_request_that_is_forwarded_as_it_came_is_not_counted() -> None:
    """Nor is one whose answer is not known: another session, or a conversation that was rewound."""
    assert tell(TALK).share_kept() is None
    needed = Needed()
    short = {"way": conversation(TALK[0])}
    needed.add("s", conversation(*TALK), short)
    needed.add("t", conversation(*TALK, ANSWER), short)
    needed.add("s", conversation(user("another")), short)
    assert needed.tallies["way"].needed == 0


def _make_series() -> Series:
    series = Series()
    for number in range(3):
        series.begin()
        series.add(
            100 * number, {"recorded": 50}, {"recorded": {"trimtab": 1.0 * number, "nothing": 2.0, "summaries": 0.0}}
        )
    return series


@pytest.mark.covered
@pytest.mark.filterwarnings("error")
def test_a_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log no costs may be known, and no course; then there is no legend. Errors say what to do."""
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    draw(_make_series(), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    series = Series()
    draw(series, tmp_path / "a.svg")
    series.begin()
    series.add(100, {}, {})
    draw(series, tmp_path / "a.svg")
    with pytest.raises(StoppedError, match="No such file"):
        draw(_make_series(), tmp_path / "none" / "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(StoppedError, match=r"pip install 'trimtab\[plot\]'"):
        draw(_make_series(), tmp_path / "a.svg")


def test_however_many_requests_there_are_the_points_are_bounded_and_even() -> None:
    series = _make_series()
    assert [(point.number, point.original_tokens) for point in series.points] == [(1, 0), (2, 100), (3, 200)]
    for _ in range(5 * MAX_POINTS):
        if series.begin():
            series.add(1, {}, {})
    numbers = [point.number for point in series.points]
    assert MAX_POINTS // 4 < len(numbers) < MAX_POINTS
    assert len({after - before for before, after in itertools.pairwise(numbers)}) == 1
