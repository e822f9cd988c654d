"""A request is compacted, or its compaction is only computed: on values, without a socket."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.client import SMALL
from support.journeys import ARRIVAL, MakeStages, Stages, arrive, make_reply, read, read_session, run_stages
from support.model_learning import ListLog
from support.sessions import make_session

from trimtab.proxy.compaction.compactor import Compactor, Planned
from trimtab.proxy.compaction.offload import INLINE_BYTES
from trimtab.proxy.compaction.pool import Compactors
from trimtab.proxy.compaction.tokenizers.exact import count_by_heuristic
from trimtab.proxy.exchange.attempt import Prepared
from trimtab.proxy.exchange.compact import add_kept_of_session, compact, refuse_or_pass, surely_stays
from trimtab.proxy.models.calibration import Report
from trimtab.proxy.models.hypotheses import FIRST_TEST
from trimtab.proxy.models.lessons import Lesson
from trimtab.proxy.models.records import ModelName
from trimtab.proxy.recall import Place, find_head
from trimtab.proxy.wire.chat.codec import CHAT
from trimtab.proxy.wire.codec import Request
from trimtab.rules.policy import Policy

PRUNES = ("defaults.overflow_strategy=prune",)
PLANTED = "planted secret text"
LONG = [{"role": "user", "content": "word " * 9000}]
"""One message over the window, which no rule may shorten."""
SHORT = [{"role": "user", "content": "hi"}]


async def test_what_fits_goes_out_as_the_clients_own_bytes(make_stages: MakeStages) -> None:
    stages = await make_stages(*PRUNES)
    request = read_session(3)
    attempt = await stages.attempt(request)

    assert (attempt.outcome, attempt.refusal) == ("unchanged", None)
    assert attempt.body == (request.body,)
    assert (attempt.compacted.decisions, attempt.compacted.sent_tokens) == ((), attempt.compacted.original_tokens)


async def test_what_does_not_fit_is_compacted(make_stages: MakeStages) -> None:
    stages = await make_stages(*PRUNES)
    request = read_session(24, result_words=400)
    attempt = await stages.attempt(request)

    assert attempt.outcome == "compacted"
    assert attempt.compacted.original_tokens > 8000 > attempt.compacted.limit_tokens >= attempt.compacted.sent_tokens
    assert [decision.rule for decision in attempt.compacted.decisions] == ["prune"]
    assert attempt.body == attempt.compacted.pieces != (request.body,)
    assert [name for name, _ in attempt.seconds] == ["plan", "apply"]


async def test_observing_decides_the_same_and_sends_the_original(make_stages: MakeStages) -> None:
    enforced, observed = [await make_stages(*PRUNES, f"mode={mode}") for mode in ("enforce", "observe")]
    request = read_session(70)
    done, seen = await enforced.attempt(request), await observed.attempt(request)

    assert (seen.outcome, seen.body) == ("observe", None)
    assert seen.compacted == done.compacted
    by_header = await enforced.attempt(request, **{"x-trimtab-mode": "observe"})
    assert (by_header.outcome, by_header.body, by_header.compacted) == ("observe", None, done.compacted)


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_what_the_policy_refuses_is_told_in_figures(make_stages: MakeStages, mode: str) -> None:
    stages = await make_stages("defaults.on_exceeded=error", "defaults.completion_reserve=1000", f"mode={mode}")
    attempt = await stages.attempt(read(LONG))

    assert (attempt.outcome, attempt.body) == (mode, None)
    assert (attempt.compacted.limit_tokens, attempt.compacted.decisions) == (7000, ())
    assert attempt.compacted.original_tokens == attempt.compacted.sent_tokens > 9000
    assert (attempt.refusal is not None) is (mode == "enforce")
    assert attempt.refusal is None or "after compaction" not in str(attempt.refusal)
    assert [name for name, _ in attempt.seconds][:1] == ["plan"]


async def test_a_refusal_says_what_the_limit_is_made_of(make_stages: MakeStages) -> None:
    settings = ("defaults.on_exceeded=error", "defaults.completion_reserve=1000", "defaults.max_tool_result_tokens=100")
    stages = await make_stages(*settings)
    messages = [{"role": "tool", "tool_call_id": "a", "content": "a line of it\n" * 500}]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    attempt = await stages.attempt(read([*SHORT, asked, *messages, *LONG]))

    (decision,) = attempt.compacted.decisions
    said, tokens = str(attempt.refusal), attempt.compacted.sent_tokens
    assert said.startswith(
        "This model's maximum context length is 8000 tokens. However, your messages resulted in"
        f" {tokens} tokens after compaction (truncate saved {decision.saved_tokens})."
    )
    assert "1000 tokens of the window are reserved for the completion, which leaves a limit of 7000 tokens" in said


class _Broken(Compactor):
    """A compactor that fails in one of its methods."""

    def __init__(self, at: str) -> None:
        super().__init__(count_by_heuristic)
        setattr(self, at, self._break)

    def _break(self, *_: object, **__: object) -> None:
        raise ZeroDivisionError(PLANTED)


class _BrokenPool:
    """A pool with a compactor that fails, or with none."""

    def __init__(self, at: str) -> None:
        self._at = at

    async def get(self, *_: object, **__: object) -> Compactor:
        if self._at == "get":
            raise ZeroDivisionError(PLANTED)
        return _Broken(self._at)


@pytest.mark.parametrize(
    ("at", "phase"), [("get", "plan"), ("plan", "plan"), ("apply", "apply"), ("summaries", "summary")]
)
async def test_a_fault_fails_open_and_is_counted_under_its_phase(make_stages: MakeStages, at: str, phase: str) -> None:
    stages = await make_stages("defaults.overflow_strategy=summarize")
    broken = {"summaries": None} if at == "summaries" else {"compactors": _BrokenPool(at)}
    services = structs.replace(stages.services, **broken)
    lane = services.lane(ARRIVAL.tenant)
    attempt = await compact(services, arrive(), stages.route(), read_session(70), make_reply(), lane)

    assert (attempt.outcome, attempt.body, attempt.compacted) == ("failed_open", None, None)
    assert stages.count("fail_open_total", phase=phase) == 1
    error = "AttributeError" if at == "summaries" else "ZeroDivisionError"
    assert stages.log.lines == [{"event": "fail_open", "request_id": "id", "phase": phase, "error": error}]
    assert phase not in dict(attempt.seconds)


LETTERS = "x" * INLINE_BYTES


def _note_threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each plan is made on the event loop, from now on."""
    on_loop, plan = list[bool](), Compactor.plan

    def note(compactor: Compactor, *told: Any, **more: Any) -> Planned:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return plan(compactor, *told, **more)

    monkeypatch.setattr(Compactor, "plan", note)
    return on_loop


async def test_what_holds_the_event_loop_is_planned_in_a_thread(make_stages, monkeypatch) -> None:
    """One long word takes ten times as long as a text of that length, and a short message as long as 250 bytes.

    Before the vocabulary is loaded nothing is counted on the event loop: one word of 512 letters takes 34 ms then.
    """
    stages, on_loop = await make_stages(), _note_threads(monkeypatch)
    for texts, is_on_loop in ((["Hello"] * 3, True), ([LETTERS], False), ([str(at) for at in range(40)], False)):
        on_loop.clear()
        await stages.attempt(read([{"role": "user", "content": text} for text in texts]))
        assert set(on_loop) == {is_on_loop}
    async with run_stages(Compactors(ListLog())) as early:
        on_loop.clear()
        await early.attempt(read([{"role": "user", "content": LETTERS[:400]}]))
        assert set(on_loop) == {False}


async def _learn(stages: Stages, lesson: Lesson) -> None:
    """Teach the model of `read` something, as a refusal would."""
    name = (await stages.prepare(read(SHORT))).view.name
    stages.services.models.note_answer(name, 0)
    await stages.services.models.learn(name, 8000, lesson)
    await stages.settle()


GUESS = Lesson(2048, is_certain=False, source="second attempt")


@pytest.mark.parametrize(("words", "is_refused"), [(4000, False), (9000, True)])
async def test_a_lesson_alone_never_refuses(make_stages: MakeStages, words: int, *, is_refused: bool) -> None:
    stages = await make_stages("defaults.on_exceeded=error", "defaults.completion_reserve=1000")
    await _learn(stages, GUESS)
    attempt = await stages.attempt(read([{"role": "user", "content": "word " * words}]))

    assert (attempt.refusal is not None) is is_refused
    assert (isinstance(attempt, Prepared) and attempt.is_test) is not is_refused
    assert attempt.outcome == ("enforce" if is_refused else "unchanged")
    assert not is_refused or "This model's maximum context length is 2048 tokens" in str(attempt.refusal)


@pytest.mark.parametrize("strategy", ["prune", "summarize"])
async def test_each_so_many_requests_that_only_a_lesson_cuts_one_goes_out_uncut(make_stages, strategy: str) -> None:
    stages = await make_stages(f"defaults.overflow_strategy={strategy}", "defaults.completion_reserve=100")
    request = read_session(22, result_words=200)
    assert [(await stages.attempt(request)).is_test for _ in range(FIRST_TEST)] == [False] * FIRST_TEST
    await _learn(stages, replace(GUESS, window_tokens=4096))
    await stages.attempt(request, **{"x-trimtab-mode": "observe"})
    attempts = [await stages.attempt(request) for _ in range(FIRST_TEST)]

    assert [attempt.outcome for attempt in attempts] == ["compacted"] * (FIRST_TEST - 1) + ["unchanged"]
    assert [attempt.is_test for attempt in attempts] == [False] * (FIRST_TEST - 1) + [True]
    assert not (await stages.attempt(read_session(3))).is_test


async def _learn_ratio(stages: Stages) -> ModelName:
    """Teach the model of `read` that a token counts twice; returns its name."""
    name, models = (await stages.prepare(read(SHORT))).view.name, stages.services.models
    models.note_answer(name, 0)
    models.observe(name, Report(1000, 2000, limit_tokens=7000))
    await stages.settle()
    return name


async def test_a_ratio_alone_shortens_no_message_until_the_server_has_refused_it(make_stages: MakeStages) -> None:
    stages = await make_stages("defaults.completion_reserve=1000")
    name, models = await _learn_ratio(stages), stages.services.models
    fits, never = ([{"role": "user", "content": "word " * words}] for words in (5000, 9000))

    attempt = await stages.attempt(read(fits))
    assert (attempt.outcome, attempt.is_test) == ("unchanged", True)
    assert (await stages.attempt(read(never))).outcome == "compacted"
    assert (await stages.attempt(read(fits), **{"x-trimtab-mode": "observe"})).compacted.decisions

    models.fail_test(name)
    await stages.settle()
    attempt = await stages.attempt(read(fits))
    assert (attempt.outcome, attempt.is_test) == ("compacted", False)


@pytest.mark.parametrize(("steps", "is_test"), [(30, True), (40, False)])
async def test_a_ratio_is_not_tested_if_that_would_need_another_summary(
    make_stages: MakeStages, steps: int, *, is_test: bool
) -> None:
    """The ledger says of a test that it has changed nothing."""
    stages = await make_stages("defaults.completion_reserve=1000", "defaults.overflow_strategy=summarize")
    await _learn_ratio(stages)
    said = {"role": "user", "content": "word " * 3000}
    attempt = await stages.attempt(read([*make_session(steps, result_words=120)["messages"][:-1], said]))
    assert (attempt.outcome, attempt.is_test) == ("compacted", is_test)
    told = [(one.messages, one.first_changed) for one in attempt.call.ledger.entries if one.rule == "lesson_test"]
    assert told == [(0, 0)] * is_test


async def test_an_upstream_is_asked_for_an_open_window_with_the_clients_credential(make_stages: MakeStages) -> None:
    configured, open_ = await make_stages(), await make_stages("defaults.context_window=auto")
    for stages in (configured, open_):
        await stages.prepare(read(SHORT), Authorization="Bearer sk-own")
        await stages.settle()
    assert configured.client.windows_asked == []
    assert open_.client.windows_asked[0].getall("Authorization") == ["Bearer sk-own"]


WIDE = Policy(context_window=1_000_000)
LONG_TEXT = "some words of no weight " * 4000


@pytest.mark.parametrize(
    ("request_", "policy", "stays"),
    [
        (read([{"role": "user", "content": LONG_TEXT}]), WIDE, True),
        (read([{"role": "user", "content": [{"type": "text", "text": LONG_TEXT}]}]), WIDE, True),
        (read([{"role": "user", "content": LONG_TEXT}]), replace(WIDE, context_window=100_000), False),
        (read([{"role": "user", "content": LONG_TEXT}], max_tokens=900_000), WIDE, True),
        (read([{"role": "user", "content": LONG_TEXT * 5}], max_tokens=900_000), WIDE, False),
        (read([{"role": "user", "content": LONG_TEXT}]), replace(WIDE, high_water=0.05), False),
        (read([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), WIDE, False),
        (CHAT.read(b'{"messages":[{"role":"user","content":[{"ty\\u0070e":"image_url"}]}]}'), WIDE, False),
    ],
)
def test_what_was_not_counted_stays_only_if_that_is_sure(request_: Request, policy: Policy, stays: bool) -> None:  # noqa: FBT001
    assert surely_stays(request_, policy) == stays
    if stays:
        compactor = Compactor(len)  # the most tokens that there can be
        planned = compactor.plan(request_, policy)
        assert compactor.apply(planned, None).body is request_.body


async def _observes(stages: Stages, task: str, *later: dict) -> bool:
    attempt = await stages.attempt(read([{"role": "system", "content": str(later)}, *_say(task), *later]))
    assert attempt.call.route.target.mode == ("observe" if attempt.outcome == "observe" else "enforce")
    assert (attempt.body is None) is (attempt.outcome == "observe")
    return attempt.outcome == "observe"


def _say(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


async def test_a_share_of_sessions_is_observed_and_each_stays_on_its_side(make_stages: MakeStages) -> None:
    """A session of a small share is in each larger one, too. The shares 0 and 1 are exact.

    100 sessions at 0.3: 30 are expected, and 23 more or fewer are 5 standard deviations.
    """
    shares = {share: await make_stages(f"defaults.observe_share={share}") for share in (0, 0.3, 0.9, 1)}
    tasks = [f"Task {number}." for number in range(100)]
    seen = {share: {task for task in tasks if await _observes(stages, task)} for share, stages in shares.items()}

    assert (seen[0], seen[1]) == (set(), set(tasks))
    assert abs(len(seen[0.3]) - 30) <= 23
    assert 75 <= len(seen[0.9]) < 100
    assert seen[0.3] < seen[0.9]
    again = await make_stages("defaults.observe_share=0.3")  # another replica
    for task in tasks[:9]:
        later = ({"role": "assistant", "content": "Done."}, *_say("More."))
        assert await _observes(again, task, *later) is (task in seen[0.3])
        assert await _observes(again, task, *later, {"role": "assistant", "content": "Yes."}) is (task in seen[0.3])


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OPEN = [*_say("Do it."), {"role": "assistant", "content": None, "tool_calls": [CALL]}, *_say("And?")]


async def test_an_unpaired_transcript_is_repaired_or_refused(make_stages: MakeStages) -> None:
    """Only in mode enforce. It is no fault."""
    refuses = "defaults.pairing=refuse"
    for settings, outcome, is_refused in (
        ((), "compacted", False),
        ((refuses,), "enforce", True),
        ((refuses, "mode=observe"), "observe", False),
        ((refuses, "defaults.observe_share=1"), "observe", False),
    ):
        stages = await make_stages(*settings)
        attempt = await stages.attempt(read(OPEN))
        assert (attempt.outcome, attempt.refusal is not None) == (outcome, is_refused)
        assert not is_refused or "1 call has no result (messages[1])" in str(attempt.refusal)
        assert stages.count("fail_open_total", phase="plan") == 0
        assert (await stages.attempt(read_session(3))).refusal is None


# A request for which no thread was free.


@pytest.mark.parametrize(("steps", "passes"), [(1, True), (60, False)])
async def test_only_a_request_that_surely_needs_nothing_passes(steps: int, passes, make_stages: MakeStages) -> None:
    stages = await make_stages(*SMALL)
    call = await stages.prepare(read_session(steps))
    assert (refuse_or_pass(call) is None) is passes


async def test_what_was_found_for_a_session_stands_in_its_next_plan(make_stages: MakeStages) -> None:
    request = read_session(4)
    for recall, stands in (("tool", True), ("off", False)):
        stages = await make_stages(f"defaults.recall={recall}")
        call = await stages.prepare(request)
        planned = call.compactor.plan(request, call.view.policy)
        plan, tenant = planned.plan, call.arrival.tenant
        assert await add_kept_of_session(stages.services, call, planned) is planned
        at = max(at for at, message in enumerate(plan.conversation.messages) if message.answers)
        place = Place(plan.hashes[at - 1], plan.conversation.messages[at].answers)
        await stages.services.found_texts.keep(tenant.id, tenant.secret, find_head(plan), place, "what was found")
        again = await add_kept_of_session(stages.services, call, planned)
        assert [(pin.at, pin.line) for pin in again.plan.recalled] == [(at, "what was found")] * stands


async def test_known_messages_in_a_new_order_are_planned_in_a_thread_too(
    make_stages: MakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to count, and all messages are to be gone through."""
    stages, messages = await make_stages(), [{"role": "user", "content": f"Part {number}."} for number in range(300)]
    await stages.attempt(read(messages))
    on_loop = _note_threads(monkeypatch)
    await stages.attempt(read(messages[::-1]))
    assert on_loop[-1] is False
