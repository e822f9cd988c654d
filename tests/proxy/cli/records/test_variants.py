"""How requests are compacted: as recorded, or as a configuration says."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
from msgspec import structs
from support.client import CHAT
from support.recordings import make_recording

from trimtab.proxy.account.recordings.format import Circumstances, RecordedSending, RecordedSummary, Recording
from trimtab.proxy.catalogue.prices import find_listed
from trimtab.proxy.cli.records.variants import (
    ConfiguredVariants,
    RecordedVariants,
    Texts,
    read,
)
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.config.load import load_config
from trimtab.proxy.models.records import Facts
from trimtab.proxy.wire.codec import Request
from trimtab.rules.policy import Policy
from trimtab.rules.summary.request import Summary

LEARNED = Policy(context_window=30_000, token_ratio=1.3, ceiling_tokens=20_000, added_tokens=500)
BODY = orjson.dumps(CHAT)


def _configure(compactors: Compactors, *settings: str) -> ConfiguredVariants:
    return ConfiguredVariants(compactors, load_config(settings=settings, environment={}, is_online=False))


def _record(**more: Any) -> Recording:
    prices = find_listed("https://api.openai.com/v1", "gpt-4o")
    told = Circumstances({}, LEARNED, 30_000, Facts(1.3), prices, "https://api.openai.com/v1")
    recording = make_recording(body=BODY.decode())
    return structs.replace(
        recording, circumstances=structs.replace(told, **more), event=structs.replace(recording.event, label="my label")
    )


def _read(compactors: Compactors, model: str = "gpt-4o") -> Request:
    return replace(read(compactors, BODY), model=model)


def _plan(key: str, max_tokens: int = 100, *, asks_model: bool = True) -> Any:
    wanted = SimpleNamespace(key=key, max_tokens=max_tokens, room_tokens=max_tokens + 20, asks_model=asks_model)
    return SimpleNamespace(request=wanted)


def test_what_was_learned_stays(compactors: Compactors) -> None:
    """The token ratio and what a refusal has taught, and the window unless one is configured; other keys do not."""
    ways = _configure(compactors, "defaults.protect_turns=7")
    policy = ways.choose(_read(compactors), _record()).variant.policy
    assert (policy.context_window, policy.token_ratio, policy.added_tokens) == (30_000, 1.3, 500)
    assert (policy.ceiling_tokens, policy.protect_turns) == (20_000, 7)
    policy = _configure(compactors, "defaults.context_window=64000").choose(_read(compactors), _record()).variant.policy
    assert (policy.context_window, policy.ceiling_tokens, policy.token_ratio) == (64_000, None, 1.3)


def test_prices_are_as_recorded_unless_the_configuration_names_them(compactors: Compactors) -> None:
    """Or names another upstream."""
    recorded = find_listed("https://api.openai.com/v1", "gpt-4o")
    plain = _configure(compactors).choose(_read(compactors), _record())
    configured = _configure(compactors, "prices={input: 7, cached_input: 1, output: 9, unit: usd}")
    elsewhere = _configure(compactors, "upstream.base_url=http://127.0.0.1:1/v1").choose(_read(compactors), _record())

    assert (plain.pricing.prices, plain.pricing.lifetime_seconds) == (recorded, 300.0)
    other = find_listed("https://api.openai.com/v1", "gpt-4o-mini")
    assert _configure(compactors).choose(_read(compactors), _record(prices=other)).pricing.prices == other != recorded
    assert configured.choose(_read(compactors), _record()).pricing.prices.at(1).input == 7
    assert (elsewhere.pricing.prices.is_in_dollars, elsewhere.pricing.lifetime_seconds) == (False, None)


def test_a_recorded_request_counts_under_its_label_and_a_body_under_its_model(compactors: Compactors) -> None:
    """Or under the glob that the model matches."""
    ways = _configure(compactors, "models=[{match: 'gpt-*', protect_turns: 1}]")
    assert ways.choose(_read(compactors), _record()).label == "my label"
    assert [ways.choose(_read(compactors, name)).label for name in ("gpt-4o", "qwen", "")] == ["gpt-*", "qwen", "other"]


def test_the_mode_is_the_configured_one(compactors: Compactors) -> None:
    settings = ((), ("mode=observe",), ("defaults.observe_share=1",), ("mode=off",))
    modes = [_configure(compactors, *each).choose(_read(compactors)).variant.mode for each in settings]
    assert modes == ["enforce", "observe", "observe", "off"]


def test_a_recorded_way_has_everything_that_the_plan_depended_on(compactors: Compactors) -> None:
    recording = _record(
        local_items=("ghost_snapshot",), strips_nonces=True, drop_tools=("fly",), cold={"ab" * 32: "cut"},
        cache_adds=("cache_key",),
    )  # fmt: skip
    recording = structs.replace(recording, sent=RecordedSending('{"prompt_cache_key":"c1",' + BODY.decode()[1:]))
    assert recording.circumstances is not None
    chosen = RecordedVariants(compactors).choose(recording, recording.circumstances, "gpt-4o")
    way = chosen.variant
    assert (way.policy, way.unsent.local_items, way.unsent.nonces) == (LEARNED, ("ghost_snapshot",), True)
    assert (way.unsent.tools, dict(way.cold)) == (("fly",), {bytes.fromhex("ab" * 32): "cut"})
    assert (way.cache.adds, way.cache.key, way.mode, chosen.label) == ({"cache_key"}, "c1", "enforce", "my label")


def test_a_recorded_text_stands_for_the_same_cut_only(compactors: Compactors) -> None:
    """If the session, the prefix and the room are the same; and never where no model is asked."""
    compactor = _configure(compactors).choose(_read(compactors)).variant.compactor
    texts, summary = Texts(), Summary("The harbour was mended.", by_model=True)
    texts.keep("s", "k", summary)
    assert texts.find("s", _plan("k"), compactor) == summary
    others = [texts.find("s", _plan("x"), compactor), texts.find("t", _plan("k"), compactor)]
    others += [texts.find("s", _plan("k", 2), compactor), texts.find("s", _plan("k", asks_model=False), compactor)]
    assert others == [None] * 4


def test_a_recorded_note_of_the_provider_stands_there_if_it_has_room(compactors: Compactors) -> None:
    """It has that of all that it stands for. Its text, if it has one, is only a copy of it."""
    compactor = _configure(compactors).choose(_read(compactors)).variant.compactor
    texts, note = Texts(), Summary("word " * 500, by_model=True, note=b"x" * 480)
    texts.keep("s", "k", note)
    assert texts.find("s", _plan("k"), compactor) == note
    assert texts.find("s", _plan("k", 99), compactor) is None


def test_cuts_that_were_taken_back_are_taken_back_again(compactors: Compactors) -> None:
    """Until as many are left as were recorded; the last one gets its recorded text."""
    earlier = SimpleNamespace(window=SimpleNamespace(cuts=(1,)), request=SimpleNamespace(key="k"))
    plan: Any = SimpleNamespace(window=SimpleNamespace(cuts=(1, 2)), put_off=lambda: earlier, request=None)
    summary = RecordedSummary("id", "summarise", True, "mended")  # noqa: FBT003
    recording = structs.replace(_record(put_off=True, cuts=1), summary=summary)
    ways = RecordedVariants(compactors)
    assert recording.circumstances is not None
    text = ways.choose_text(recording, recording.circumstances)(plan)
    assert (text.plan, text.summary) == (earlier, Summary("mended", by_model=True))

    noted = structs.replace(recording, summary=RecordedSummary("id", "summarise", True, "", "{}"))  # noqa: FBT003
    assert ways.choose_text(noted, recording.circumstances)(plan).summary == Summary("", by_model=True, note=b"{}")

    as_made = structs.replace(recording.circumstances, put_off=False)
    assert ways.choose_text(recording, as_made)(plan).plan is plan
