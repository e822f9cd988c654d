"""Carry out a plan.

Law: pure. Messages keep their indexes until the summary is spliced in, so the plan's indexes stay valid.
"""

from trimtab.rules.conversation import Conversation, CountTokens, Decision, Outcome
from trimtab.rules.pipeline.arguments import shorten_arguments
from trimtab.rules.pipeline.exceeded import LimitExceededError, find_remainder
from trimtab.rules.pipeline.pins import pin_results
from trimtab.rules.pipeline.plan import Plan
from trimtab.rules.pipeline.recall import RECALL
from trimtab.rules.pipeline.transcript_state import States, TranscriptState
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.results.dedupe import dedupe_tool_results
from trimtab.rules.results.work import Work
from trimtab.rules.summary.anchors.write import Anchors, Place
from trimtab.rules.summary.request import Summary, make_digest
from trimtab.rules.summary.splice import splice_summary
from trimtab.rules.window.prune import Loops, prune_tool_results, remove_images


def apply(
    plan: Plan,
    policy: Policy,
    *,
    count: CountTokens,
    summary: Summary | None = None,
    work: Work | None = None,
    states: States | None = None,
) -> Outcome:
    """Carry out the plan and return the conversation to forward, with all decisions.

    summary: the text that `plan.request` asked for; None for the digest.
    work, states: as for `plan`.

    Raises LimitExceededError if the request does not fit and the policy refuses it. Raises LargeWorkError if the
    allowance of `work` is used up.
    """
    if plan.is_empty:
        return Outcome(plan.original)
    work, key = work or Work(count), plan.key
    if states is None or key is None or (seen := states.get(key)) is None:
        return _carry_out(plan, policy, summary, work.begin(), None)
    done = seen.find_outcome(plan, summary)
    if done is not None:
        return done
    state = states.pop_first([key])  # None if another request has taken it
    try:
        outcome = _carry_out(plan, policy, summary, work.begin(), state)
    finally:
        if state is not None:
            states[key] = state
    seen.done = plan, summary, outcome
    return outcome


def _carry_out(
    plan: Plan, policy: Policy, summary: Summary | None, work: Work, state: TranscriptState | None
) -> Outcome:
    before = _shorten_old(plan, policy, work, state)
    current, decisions = before.conversation, plan.decisions + before.decisions
    if plan.request is not None:
        spliced = _splice(plan, current, policy, summary, work, state)
        current, decisions = spliced.conversation, decisions + spliced.decisions
    if plan.pins:
        pinned = _pin(plan, before.conversation, current, state)
        current, decisions = pinned.conversation, decisions + pinned.decisions
    if plan.recalled:
        recalled = _recall(plan, before.conversation, current, state)
        current, decisions = recalled.conversation, decisions + recalled.decisions
    _check(plan, current, decisions, policy)
    return Outcome(plan.original if not decisions else current, decisions)


def _shorten_old(plan: Plan, policy: Policy, work: Work, state: TranscriptState | None) -> Outcome:
    """Prune results, replace repeated ones, remove images, and shorten stale arguments. No index changes."""
    window, cut, count = plan.window, plan.window.cut, work.count
    current, decisions = plan.conversation, tuple[Decision, ...]()
    start = plan.leading if cut is None else max(cut.at, plan.leading)
    for first, stop in () if cut is None else cut.bare_steps:  # only the search that loaded tools stays of them
        bare = prune_tool_results(current, start=first, stop=stop, count=count)
        current, decisions = bare.conversation, decisions + bare.decisions
    if window.prune_stop > start:
        known, loops = None if state is None else state.pruned, Loops(window.spared, window.unfit)
        pruned = prune_tool_results(current, start=start, stop=window.prune_stop, count=count, known=known, loops=loops)
        current, decisions = pruned.conversation, decisions + pruned.decisions
        start = window.prune_stop
    if policy.dedupe or any(rule.treatment.dedupe for rule in policy.tools):
        # Before the splice, because the splice shifts the indexes. It changes nothing after the cut.
        if state is None:
            deduped = dedupe_tool_results(current, policy, start=start, work=work)
        else:
            deduped = state.dedupe(current, start, policy, work)
        current, decisions = deduped.conversation, decisions + deduped.decisions
    if window.images.at or (cut is not None and cut.kept):
        without = remove_images(current, (index for index in window.without_images if index >= plan.leading))
        current, decisions = without.conversation, decisions + without.decisions
    if stale := plan.stale_arguments:
        brief = shorten_arguments(current, stale, None if state is None else state.arguments.made)
        current, decisions = brief.conversation, decisions + brief.decisions
    return Outcome(current, decisions)


def _check(plan: Plan, current: Conversation, decisions: tuple[Decision, ...], policy: Policy) -> None:
    """Raise LimitExceededError if the request does not fit and the policy refuses it."""
    # Between limit and window the request may still fit with a shorter completion: the upstream decides.
    refuses = policy.on_exceeded is not OnExceeded.FORWARD and not plan.is_put_off and not plan.original.continues
    # A guess about a file, too, is for the upstream to correct.
    tokens = current.tokens - current.guessed_tokens if current.tokens > plan.hard_limit else 0
    if tokens > plan.hard_limit and refuses and current.messages:
        sizes = plan.original.tokens, current.tokens, plan.limit
        window = policy.context_window
        error = LimitExceededError(*sizes, window=window, decisions=decisions, conversation=current)
        error.remainder = find_remainder(plan, current, policy)
        raise error


def _pin(plan: Plan, before: Conversation, after: Conversation, state: TranscriptState | None) -> Outcome:
    """Append the pins. If `after` has no summary although a cut was planned, the results before the cut keep theirs."""
    pins = plan.forwarded_pins
    if before is after:
        pins = tuple(pin for pin in plan.pins if pin.at >= plan.window.prune_stop)
    # Before the first result after the cut there is a message with its calls, and our acknowledgement before that.
    shift = len(after.messages) - len(before.messages)
    return pin_results(after, pins, shift=shift, known=None if state is None else state.pinned)


def _recall(plan: Plan, before: Conversation, after: Conversation, state: TranscriptState | None) -> Outcome:
    shift, known = len(after.messages) - len(before.messages), None if state is None else state.recalled
    told = (RECALL, "messages with passages from what was removed")
    return pin_results(after, plan.forwarded_recalled, shift=shift, known=known, told=told)


def _splice(
    plan: Plan,
    current: Conversation,
    policy: Policy,
    summary: Summary | None,
    work: Work,
    state: TranscriptState | None,
) -> Outcome:
    request, cut, count = plan.request, plan.window.cut, work.count
    if request is None or cut is None:
        return Outcome(current)
    # A digest ends with a closing line, so it must not be truncated: write it again if it is too long for this cut.
    if summary is None or (not summary.by_model and count(summary.text) > request.max_tokens):
        work.allowance.spend(sum(one.chars for one in (*request.earlier, *request.span)))
        summary = Summary(make_digest(request, count=count), by_model=False)
    if cut.anchor_tokens and not summary.standing:
        task = plan.window.task
        # A task statement that came after the cut was made must not change what the cut carries over.
        task = None if task is None or task >= cut.made_at else task
        place = Place(cut, task, policy.instruction_files, told="" if summary.by_model else summary.text)
        anchors = Anchors() if state is None else state.anchors
        carried = anchors.find(plan.whole.messages, place, count=count, spend=work.allowance.spend)
        summary = Summary(summary.text, summary.by_model, carried)
    known, role = None if state is None else state.spliced, policy.summary_role
    spliced, outcome = splice_summary(current, window=plan.window, summary=summary, role=role, count=count, known=known)
    if state is not None:
        state.spliced = spliced
    return outcome
