"""What became of a request: a figure is shown where its declaration says, and the session and its window are told."""

from typing import Any

import msgspec
from support.client import post
from support.events import read_events

from trimtab.proxy.account.outcome import FIGURES, Outcome, OutcomeText, keep, write_attributes, write_line
from trimtab.proxy.catalogue.prices import Bill, Cost, Tokens
from trimtab.proxy.telemetry.metrics import Metrics


async def test_one_system_prompt_is_no_session(client, start_proxy):
    proxy = await start_proxy()
    for system, task in (
        ("You are an agent.", "Fix it."),
        ("You are an agent.", "Write it."),
        ("It is noon.", "Fix it."),
    ):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages})
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "other", "messages": messages})
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages[:1]})
    await post(client, f"{proxy.url}/v1/chat/completions", {"model": "m", "messages": messages}, authorization="k")
    await proxy.services.lifecycle.idle.wait()

    fix, write, at_noon, *others = [event.session for event in await read_events(proxy.services.past)]
    assert fix == at_noon
    assert len({fix, write, *others, ""}) == 6  # another model, the system prompt alone, another tenant


def test_a_span_tells_money_in_dollars():
    bill = Bill(Tokens.of(10), Tokens.of(20), Cost(fresh=2_500_000_000), Cost(fresh=10**10))
    told = write_attributes(Outcome("id", 1.0, "chat", "POST", "/", 200, "compacted", 0.1, bill=bill))
    assert (told["trimtab.cost_usd"], told["trimtab.cost_without_usd"]) == (2.5, 10)


def test_the_text_of_a_conversation_is_not_shown_by_accident():
    assert "secret" not in repr(OutcomeText(("told",), (), "secret"))


def _fill(kind: msgspec.inspect.Type) -> Any:
    """A value of this type that is not empty."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return next((value for value in map(_fill, kind.types) if value is not None), None)
    plain = {msgspec.inspect.StrType: "word", msgspec.inspect.IntType: 7, msgspec.inspect.FloatType: 0.5}
    return plain.get(type(kind), True if isinstance(kind, msgspec.inspect.BoolType) else None)


def test_each_figure_is_shown_where_its_declaration_says() -> None:
    """So a new figure needs no other place than its declaration, and the line that fills it."""
    kinds = {each.name: each.type for each in msgspec.inspect.type_info(Outcome).fields}
    filled = {name: value for name, kind in kinds.items() if (value := _fill(kind)) is not None}
    outcome = Outcome(**filled, original_sections=(1,) * 5, sent_sections=(1,) * 5)
    line, attributes, kept = write_line(outcome), write_attributes(outcome), keep(outcome)

    assert {name for name in filled if FIGURES[name].in_log} <= line.keys()
    assert (line["mode"], "mode" in write_line(msgspec.structs.replace(outcome, mode="enforce"))) == ("word", False)
    assert {FIGURES[name].span for name in filled if FIGURES[name].span} <= attributes.keys()
    assert kept.keys() == {name for name, shown in FIGURES.items() if shown.is_kept}
    assert {shown.histogram for shown in FIGURES.values() if shown.histogram} <= vars(Metrics()).keys()
