"""Compaction of one request's bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from string import ascii_lowercase
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import conversation, count, fill, session, system, transcripts, user
from support.chats import LANGUAGES, count_facts, make_chat
from support.dialects.spoken.all_dialects import DIALECTS, each_dialect
from support.dialects.spoken.chat import CHAT
from support.dialects.spoken.dialect import Dialect, list_texts
from support.policies import POLICY

from trimtab.proxy.compaction import load_compactor, read_request
from trimtab.proxy.compaction.caches import Caches
from trimtab.proxy.compaction.compactor import (
    Compacted,
    Compactor,
    RefusedError,
    _mark_kept,
    describe_excess,
    refuse,
    write_cost,
)
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.config.load import load_config
from trimtab.proxy.config.policy import PolicyConfig
from trimtab.proxy.telemetry.ledger import Entry
from trimtab.proxy.wire.answering import PROMPT_TOO_LONG, ErrorText
from trimtab.proxy.wire.cache_help import CacheHelp
from trimtab.proxy.wire.dialects import DEFAULT
from trimtab.proxy.wire.overflow import read_overflow
from trimtab.proxy.wire.transcript.body import KeptBodies, KeptBody, Unsent
from trimtab.rules.conversation import Conversation, Decision
from trimtab.rules.pipeline.exceeded import LimitExceededError, Remainder
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import MEMORY_TAGS, Budget, OnExceeded, Prices
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.summary.request import Summary
from trimtab.rules.tokens.sections import count_sections, find_marks
from trimtab.rules.window.cut_candidates import SUMMARY_FRAME_TOKENS

TAKEN = Decision("nonce", "10 bytes", 0, 0, 1, 0)
LONG = "".join(f"line {number}: nothing of note\n" for number in range(2000))


def _step(number: int, result: str) -> list[dict[str, object]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": f'{{"n":{number}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def _body(*results: str, dialect: Dialect = CHAT, tools: Sequence[dict[str, object]] = (), **more: object) -> bytes:
    head = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix the bug."}]
    steps = [message for number, result in enumerate(results) for message in _step(number, result)]
    return orjson.dumps(dialect.write([*head, *steps], tools, **more), option=orjson.OPT_INDENT_2)


def _settings(text: str = "{}") -> PolicyConfig:
    return load_config(f"defaults: {text}", environment={}).defaults


SMALL = _settings("{context_window: 4000, max_tool_result_tokens: 400, summary: {max_tokens: 200, min_steps: 2}}")


@pytest.fixture
def compactor() -> Compactor:
    return Compactor(count_by_heuristic)


def _compact(
    compactor: Compactor,
    body: bytes,
    settings: PolicyConfig,
    summary: Summary | None = None,
    dialect: Dialect = CHAT,
) -> Compacted:
    return compactor.apply(compactor.plan(dialect.codec.read(body), settings.to_policy(Prices())), summary)


@each_dialect
def test_where_nothing_is_to_be_done_the_body_is_the_clients_own(compactor: Compactor, dialect: Dialect) -> None:
    """The body is the same object, there are no decisions, and the tokens sent equal the original ones."""
    body = _body("ok", "ok", dialect=dialect)

    compacted = _compact(compactor, body, _settings(), dialect=dialect)
    assert compacted.body is body
    assert (compacted.decisions, compacted.sent_tokens) == ((), compacted.original_tokens)
    assert compacted.limit_tokens == 128_000 - 8192


@each_dialect
def test_a_long_result_is_the_only_thing_that_changes(compactor: Compactor, dialect: Dialect) -> None:
    """Every other byte of the body is the client's, including separators."""
    body = _body("ok", LONG, "ok", dialect=dialect, stream=True)
    compacted = _compact(compactor, body, _settings(), dialect=dialect)

    short = dialect.read_results(orjson.loads(compacted.body))[1]
    raw = next(line for line in body.splitlines() if b"nothing of note" in line)
    assert [decision.rule for decision in compacted.decisions] == ["truncate"]
    assert len(short) < len(LONG)
    start, stop = body.rindex(b"\n    {", 0, body.index(raw)), body.index(b"\n    }", body.index(raw))
    assert compacted.body.startswith(body[:start])
    assert compacted.body.endswith(body[stop + len(b"\n    }") :])


@each_dialect
def test_the_summary_stands_for_what_was_cut(compactor: Compactor, dialect: Dialect) -> None:
    """A given text is used, else the digest. The body is valid and within the limit, and every call is answered."""
    body = _body(*["x" * 1500] * 20, dialect=dialect)

    with_text = _compact(compactor, body, SMALL, Summary("WRITTEN BY A MODEL", by_model=True), dialect)
    digest = _compact(compactor, body, SMALL, dialect=dialect)
    assert b"WRITTEN BY A MODEL" in with_text.body
    assert with_text.decisions[-1].rule == "summarise"
    assert digest.decisions[-1].rule == "digest"
    for compacted in (with_text, digest):
        assert dialect.check_request(body, compacted.body) == []
        messages = dialect.read(orjson.loads(compacted.body))
        assert messages[0] == {"role": "system", "content": "Be brief."}
        assert list_texts(messages[1])[0].startswith("Fix the bug.")
        assert compacted.sent_tokens <= compacted.limit_tokens < compacted.original_tokens
        calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def test_the_dialects_make_the_same_decisions(compactor: Compactor) -> None:
    """A session that grows is cut at the same messages in each dialect; what is sent says and costs the same."""
    results = [LONG, *(letter * 1500 for letter in ascii_lowercase[:12])]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "run", "description": "Runs.", "parameters": schema}}]
    for length in range(1, len(results) + 1):
        seen = []
        for dialect in DIALECTS:
            body = msgspec.json.format(
                _body(*results[:length], dialect=dialect, tools=tools, max_tokens=500), indent=-1
            )
            compacted = _compact(compactor, body, SMALL, dialect=dialect)
            said = [list_said(one) for one in dialect.read(orjson.loads(compacted.body))]
            seen.append((compacted.decisions, compacted.original_tokens, compacted.sent_tokens, said))
        assert seen == seen[:1] * len(seen)


def list_said(message: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The role, the text and the ids of the calls of a message."""
    calls = [call["id"] for call in message.get("tool_calls") or ()]
    return message["role"], "\n\n".join(list_texts(message)), calls


def test_messages_that_are_alike_are_spliced_alike_by_all(compactor: Compactor) -> None:
    """If one of two equal messages is cut, the white space around the other is the same for all compactors."""
    turns = [{"role": "assistant", "content": letter * 1500} for letter in "xy"]
    messages = [{"role": "user", "content": "Fix the bug."}, *turns * 20]
    body = orjson.dumps({"messages": messages}, option=orjson.OPT_INDENT_2)

    first = _compact(compactor, body, SMALL)
    assert first.decisions[-1].rule == "digest"
    assert _compact(compactor, body, SMALL).body == first.body


@each_dialect
def test_compactors_share_their_caches_but_no_counts(dialect: Dialect) -> None:
    """Each compactor plans as if it were alone. It does not use what another one has counted."""
    body = _body(LONG, *["x" * 1500] * 12, dialect=dialect)
    caches = Caches()
    counts = (count_by_heuristic, lambda text: 2 * count_by_heuristic(text))
    for number, one in enumerate(counts):
        shared = Compactor(one, caches=caches, number=number)
        assert shared.uncounted_bytes(dialect.codec.read(body)) > len(LONG)
        alone = _compact(Compactor(one), body, SMALL, dialect=dialect)
        assert _compact(shared, body, SMALL, dialect=dialect) == alone


@each_dialect
def test_a_request_seen_before_has_nothing_uncounted(compactor: Compactor, dialect: Dialect) -> None:
    """Only new parts are uncounted, and only they may need a thread."""
    read, body = dialect.codec.read, _body("ok", LONG, dialect=dialect)
    before = compactor.uncounted_bytes(read(body))
    _compact(compactor, body, _settings(), dialect=dialect)

    assert before > len(LONG)
    assert compactor.uncounted_bytes(read(body)) == 0
    assert 0 < compactor.uncounted_bytes(read(_body("ok", LONG, "new", dialect=dialect))) < 1000


def test_the_requests_own_maximum_lowers_the_limit(compactor: Compactor) -> None:
    """The room for the completion is kept free. It is rounded up to a power of two."""
    limits = [_compact(compactor, _body(**more), SMALL).limit_tokens for more in ({}, {"max_completion_tokens": 1500})]

    assert limits == [3000, 4000 - 2000]


def test_what_cannot_fit_is_refused_or_forwarded_as_the_policy_says(compactor: Compactor) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": "x" * 40_000}]})
    text = "{{context_window: 4000, on_exceeded: {}}}"

    with pytest.raises(LimitExceededError, match=r"^100\d\d prompt tokens after compaction, limit 3000"):
        _compact(compactor, body, _settings(text.format("error")))
    forwarded = _compact(compactor, body, _settings(text.format("forward")))
    truncated = _compact(compactor, body, _settings(text.format("truncate")))
    assert forwarded.body is body
    assert truncated.sent_tokens <= 3000
    assert [(item.rule, item.messages, item.first_changed) for item in truncated.decisions] == [("exceeded", 1, 0)]


def test_an_empty_plan_leaves_the_request_alone(compactor: Compactor) -> None:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello."}]})
    planned = compactor.plan(CHAT.codec.read(body), _settings().to_policy(Prices()))
    assert planned.plan.is_empty
    assert compactor.leave_alone(planned) == compactor.apply(planned, None)
    assert compactor.leave_alone(planned).pieces[0] is body


def test_a_cleaned_request_keeps_what_is_known_of_it_beside_its_body(compactor: Compactor) -> None:
    """That includes what its upstream takes, and what was taken out before."""
    tool = {"type": "function", "function": {"name": "fly", "parameters": {}}}
    known = {"model": "n", "cache": CacheHelp(frozenset({"cache_key"})), "takes_binding": False}
    request = replace(CHAT.codec.read(_body(tools=[tool])), cleaned=(TAKEN,), **known)  # type: ignore[arg-type]
    left = compactor.clean(request, Unsent(tools=("*",)))

    assert {name: getattr(left, name) for name in known} == known
    assert [one.rule for one in left.cleaned] == ["nonce", "drop_tools"]
    assert b"fly" not in left.body
    assert compactor.clean(left, Unsent(tools=("*",))) is left


@pytest.mark.parametrize(("tools", "unsent"), [([{"name": "fly"}], ()), ([], ("*",))])
def test_where_no_tool_is_to_go_nothing_is_decoded(
    compactor: Compactor, tools: list[dict[str, str]], unsent: tuple[str, ...]
) -> None:
    request = CHAT.codec.read(orjson.dumps({"model": "m", "messages": [1], **({"tools": tools} if tools else {})}))
    assert compactor.clean(request, Unsent(tools=unsent)) is request


def test_what_the_client_wants_kept_is_marked_by_the_beginning_that_ends_there() -> None:
    talk = conversation(*session(3))
    for at in (0, 3, len(talk.messages) - 1):
        marked = _mark_kept(talk, {hash_prefixes(talk.messages)[at + 1]}).messages
        assert [number for number, one in enumerate(marked) if one.keep] == [at]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["grow", "again", "rewind", "edit", "spaces", "keys", "tools"]),
        st.integers(0, 40),
        st.text("ab \n", max_size=12),
    ),
    max_size=12,
)


def _replay_changes(changes: Sequence[tuple[str, int, str]], dialect: Dialect) -> Iterator[bytes]:
    """The bodies of a session to which changes of all kinds happen."""
    steps = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix the bug."}]
    around: dict[str, object] = {"model": "m", "max_tokens": 50}
    tools: list[dict[str, object]] = []
    for number, (change, place, text) in enumerate([("grow", 9, "x"), *changes]):
        if change == "grow":
            for new in range(place % 9 + 1):
                steps = [*steps, *_step(100 * number + new, f"{text} {new} of note\n" * (20 * place))]
        elif change == "rewind":
            steps = steps[: max(len(steps) - place, 1)]
        elif change == "edit":
            at = place % len(steps)
            steps = [*steps[:at], {"role": "user", "content": text}, *steps[at + 1 :]]
        elif change == "tools":
            tools = [{"type": "function", "function": {"name": text or "t"}}]
        elif change == "keys":
            around = dict(reversed(around.items()))
        members = dialect.write(steps if dialect is CHAT else _drop_halves(steps), tools, **around)
        transcript = {dialect.transcript: members.pop(dialect.transcript)}
        body = orjson.dumps({**members, **transcript} if place % 2 else {**transcript, **members})
        yield msgspec.json.format(body, indent=place % 3) if change == "spaces" else body


def _drop_halves(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What every dialect can say: no call without its result, no result without its call, no late system message."""
    calls = {call["id"]: index for index, one in enumerate(steps) for call in one.get("tool_calls") or ()}
    pairs = {index for index, one in enumerate(steps) if calls.get(one.get("tool_call_id")) == index - 1}
    whole = pairs | {index - 1 for index in pairs}
    leads = steps[:1] if steps[0]["role"] == "system" else []
    return [*leads, *(one for index, one in enumerate(steps) if index in whole or one["role"] == "user")]


def _go_on(
    compactor: Compactor, kept_bodies: KeptBodies, body: bytes, settings: PolicyConfig, dialect: Dialect
) -> Compacted:
    """The result for a body that may continue earlier ones."""
    begun = kept_bodies.find(dialect.name, body)
    request = dialect.codec.read(body, begun)
    if request.kept_body is not None:
        kept_bodies.keep(dialect.name, request.kept_body, begun)
    return compactor.apply(compactor.plan(request, settings.to_policy(Prices())), None)


@each_dialect
@given(changes=CHANGES, settings=st.sampled_from([SMALL, _settings("{context_window: 1000000}")]))
def test_what_was_compacted_before_changes_nothing_but_the_time(dialect: Dialect, changes, settings) -> None:
    """A body may grow, repeat, go back or change. The result is that of a proxy that saw none of it."""
    kept: dict[tuple[str, bytes], tuple[KeptBody, ...]] = {}
    kept_bodies, knowing = KeptBodies(kept, 10**9), Compactor(count_by_heuristic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trimtab.proxy.wire.transcript.body.MIN_BYTES", 0)
        for body in _replay_changes(changes, dialect):
            on = _go_on(knowing, kept_bodies, body, settings, dialect)
            new = _compact(Compactor(count_by_heuristic), body, settings, dialect=dialect)
            assert (on.body, on.decisions, on.forwarded.messages) == (new.body, new.decisions, new.forwarded.messages)
            assert (on.original_tokens, on.sent_tokens) == (new.original_tokens, new.sent_tokens)


@each_dialect
def test_a_turn_is_written_behind_what_was_written_before(compactor: Compactor, dialect: Dialect) -> None:
    """The forwarded prefix consists of the same objects, so no turn copies it."""
    kept_bodies, results = KeptBodies({}, 10**9), [LONG, *("ok " * 3000 for _ in range(3))]
    before = _go_on(compactor, kept_bodies, _body(*results, dialect=dialect), SMALL, dialect)
    after = _go_on(compactor, kept_bodies, _body(*results, "new", dialect=dialect), SMALL, dialect)
    known = before.pieces[:-1]
    assert sum(map(len, known)) > 1000
    assert all(one is other for one, other in zip(known, after.pieces, strict=False))
    assert sum(map(len, after.pieces[len(known) :])) < 1000


FIND = partial(find_marks, tags=MEMORY_TAGS, count=count)
PRUNED = Decision("prune", "2 tool results before message 8", 2000, 1900, 2, 5)


def refuse_talk(talk: Conversation, limit: int, ratio: float = 1.0) -> RefusedError:
    """The refusal of a transcript of which no rule removes anything, at a limit in our tokens."""
    error = LimitExceededError(
        talk.tokens, talk.tokens, limit, window=2 * limit, decisions=(PRUNED,), conversation=talk
    )
    error.remainder = Remainder(talk, 0, max(talk.tokens - limit, 1), hard_limit=limit)
    return refuse(error, count_sections(talk, FIND), FIND, limit_tokens=int(ratio * limit), ratio=ratio)


@given(transcripts(), st.integers(1, 500), st.floats(0.5, 3))
def test_all_figures_of_a_refusal_agree(messages, fixed, ratio) -> None:
    """Sections add up to the prompt, and the reductions to the excess, at any ratio."""
    talk = conversation(*messages, fixed_tokens=fixed)
    error = refuse_talk(talk, talk.tokens // 2, ratio)
    cost = write_cost(error, [])

    assert cost["original_tokens"] == cost["tokens"] == round(ratio * talk.tokens)
    assert sum(one["compacted"] for one in cost["sections"].values()) == cost["tokens"]
    assert sum(part["by_tokens"] for part in cost["shrink"]) == min(cost["excess_tokens"], cost["tokens"])
    assert cost["tokens"] - cost["excess_tokens"] <= cost["refused_above_tokens"] + 1
    assert cost["irreducible_tokens"] + cost["removable_tokens"] == cost["tokens"]


def test_what_a_cut_would_remove_is_not_asked_of_the_client() -> None:
    """The old results are removable. They are named as such, and only the rest has to be shorter."""
    policy = replace(POLICY, context_window=4096, completion_reserve=512, on_exceeded=OnExceeded.ERROR)
    policy = replace(policy, result_budget=Budget(2000))
    old = session(8, result_tokens=1580)[2:]
    talk = conversation(user(fill("Mend it.", 3785)), *old, fixed_tokens=3)
    with pytest.raises(LimitExceededError) as caught:
        apply(plan(talk, policy, count=count), policy, count=count)
    error = refuse(caught.value, count_sections(talk, FIND), FIND, limit_tokens=3584, ratio=1.0)
    cost, said = write_cost(error, []), describe_excess(error)

    assert (cost["limit_tokens"], cost["refused_above_tokens"], cost["tokens"]) == (3584, 4096, talk.tokens)
    assert (cost["window_tokens"], cost["reserved_tokens"]) == (4096, 512)
    assert cost["removable_tokens"] == sum(message.tokens for message in old[:-2]) - SUMMARY_FRAME_TOKENS
    assert cost["excess_tokens"] == cost["irreducible_tokens"] - 4096
    (part,) = cost["shrink"]
    assert (part["what"], part["by_tokens"]) == ("the last user message", cost["excess_tokens"])
    assert "after compaction" not in said
    assert f"trimtab can remove or shorten {cost['removable_tokens']} of these tokens itself" in said


def test_another_trimtab_reads_the_window_from_the_message() -> None:
    """The further figures are not taken for the window or for the prompt. The message names what has to shrink."""
    talk = conversation(system(), user(fill("words", 900)))
    error = refuse_talk(talk, 500)
    cost = write_cost(error, [Entry.of(PRUNED, 1, 500)])
    text = ErrorText(describe_excess(error), PROMPT_TOO_LONG, more={"context_cost": cost})
    overflow = read_overflow(400, DEFAULT.write_error(text, as_event=False))

    assert (overflow.limit, overflow.requested) == (1000, talk.tokens)
    assert (cost["decisions"][0]["rule"], cost["decisions"][0]["saved_tokens"]) == ("prune", 100)
    said, message = talk.tokens - 500, talk.messages[-1].tokens
    assert describe_excess(error).endswith(f" To fit, shorten the last user message by {said} of {message} tokens.")


def test_a_refusal_without_its_conversation_has_no_parts() -> None:
    talk = conversation(user("Hello."))
    error = LimitExceededError(900, 800, 500, window=1000, decisions=())
    refused = refuse(error, count_sections(talk, FIND), FIND, limit_tokens=500, ratio=1.0)

    assert (refused.parts, write_cost(refused, [])["shrink"]) == ((), [])
    with pytest.raises(LimitExceededError):
        raise refused


# How many of a long chat's facts are forwarded if no model writes a summary.

TURNS = 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_half_of_the_facts_of_a_long_chat_are_forwarded(language: str) -> None:
    """One fact is told in each turn. Facts of the user and of the assistant are kept, at any length.

    Before digests had statements, 36 of 150 facts were forwarded, and ten of them were the assistant's.
    """
    policy = PolicyConfig(context_window=8000).to_policy(Prices())
    messages, facts = make_chat(LANGUAGES[language], turns=TURNS)
    compactor = load_compactor("gpt-4o")
    for stop in range(len(messages) - 1, len(messages) - 33, -16):
        body = orjson.dumps({"model": "gpt-4o", "messages": messages[:stop]})
        planned = compactor.plan(read_request(body), policy)
        sent = compactor.apply(planned, None)
        users, assistants = count_facts(facts, write(orjson.loads(sent.body)["messages"]))
        assert sent.sent_tokens < sent.original_tokens / 2
        assert users + assistants >= TURNS / 2
        assert min(users, assistants) >= TURNS / 6


def write(messages: list[dict[str, object]]) -> str:
    """The texts of messages as a reader sees them, with their line breaks."""
    contents = (message["content"] for message in messages)
    texts = (
        content if isinstance(content, str) else "\n".join(part["text"] for part in content) for content in contents
    )
    return "\n".join(texts)
