"""The order of the rules: `plan` decides everything about one request, and `apply` carries it out.

Law: pure. Remembered states save time and never change the result. Messages keep their indexes until the summary is
spliced in, so the plan's indexes stay valid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trimtab.rules.conversation import (
    Conversation,
    CountTokens,
    Decision,
    Message,
    Outcome,
    Role,
    count_asked,
    count_leading,
)
from trimtab.rules.pipeline.appended import RECALL, fit_pins, pin_results
from trimtab.rules.pipeline.exceeded import LimitExceededError, find_remainder, note_lost, shorten_newest
from trimtab.rules.pipeline.plan import Plan, StateKey
from trimtab.rules.pipeline.shortening import shorten_arguments
from trimtab.rules.pipeline.transcript_state import NO_COLD, Replayed, States, TranscriptState, name_state, take_state
from trimtab.rules.policy import PREFETCH_GAP, Limits, OnExceeded, Policy, find_limits
from trimtab.rules.prefix import hash_prefixes
from trimtab.rules.results.dedupe import dedupe_tool_results
from trimtab.rules.results.excerpt import may_shorten
from trimtab.rules.results.pairing import pair_tool_calls
from trimtab.rules.results.work import Work
from trimtab.rules.summary.anchors import Anchors, Carried
from trimtab.rules.summary.request import Summary, make_digest, request_prefetch
from trimtab.rules.summary.splice import splice_summary
from trimtab.rules.text.client_summaries import TRIGGER, asks_for_summary, instructs_to_summarise
from trimtab.rules.window.prune import Loops, prune_tool_results, remove_images
from trimtab.rules.window.room import HEAD_STEPS, bound_guesses
from trimtab.rules.window.state import ColdCut, Window

FEW_MESSAGES = 16
"""A longer transcript is always decided in full, and its state is kept for the next request. Chosen: up to this length,
deciding again costs less than keeping the state."""


def plan(  # noqa: PLR0913 - the memory of earlier calls, too
    conversation: Conversation,
    policy: Policy,
    *,
    count: CountTokens,
    request_max_tokens: int | None = None,
    work: Work | None = None,
    states: States | None = None,
    cold: Mapping[bytes, ColdCut] = NO_COLD,
    tells_compaction: bool | None = None,
) -> Plan:
    """Decide everything about one request. Raises LargeWorkError if the allowance of `work` is used up.

    request_max_tokens: the length of completion that the request asks for; None if it names none.
    work, states: memory of earlier calls; it saves time and does not change the result.
    cold: what was cut at a cold cache, by the hash of the prefix; entries of other transcripts have no effect.
    tells_compaction: whether the client says that it asks for a summary of its conversation; None if it does not say.
    """
    limits = find_limits(policy, request_max_tokens)
    conversation = bound_guesses(conversation, limits.limit)
    is_compaction = is_client_compaction(conversation) if tells_compaction is None else tells_compaction
    if _surely_stays(conversation, policy, limits):
        return _leave_alone(conversation, limits, is_compaction=is_compaction)
    work = work or Work(count)
    if is_compaction and may_pass(conversation, policy, limits, work.begin()):
        left = _leave_alone(conversation, limits, is_compaction=True)
        return replace(left, was_otherwise=was_edited(conversation, policy, work.begin()))
    key = name_state(conversation.messages, policy, work)
    known = None if states is None else states.get(key)
    if known is not None and (found := known.find_plan(conversation, request_max_tokens, cold)) is not None:
        return found
    state, paired = _pair(conversation, policy, states, key, work)
    replayed = state.replay(paired.conversation, policy, limits, work := work.begin(), cold)
    planned = _decide(conversation, paired, replayed, policy, state, work)
    state.last = planned, request_max_tokens
    state.give_back(states)
    return planned


def _pair(
    conversation: Conversation, policy: Policy, states: States | None, key: StateKey, work: Work
) -> tuple[TranscriptState, Outcome]:
    """The conversation with paired calls, and the state that goes on from it. `key`: before the calls are paired."""
    state = take_state(states, conversation.messages, key)
    paired = state.pairing.pair(conversation, state.leading, work.count)
    if paired.conversation is not conversation:
        state.give_back(states)
        key = name_state(paired.conversation.messages, policy, work)
        state = take_state(states, paired.conversation.messages, key)
    state.key = None if states is None else key
    return state, paired


def _surely_stays(conversation: Conversation, policy: Policy, limits: Limits) -> bool:
    """Whether no rule can act: there are no calls, results or images, and the window is nearly empty.

    All tokens count twice, as head (rounded up) and as conversation. So the result is on the safe side.
    """
    # These may remove something long before the window is full.
    has_own_limits = policy.compact_at_tokens is not None or policy.sections is not None or policy.max_turns is not None
    if len(conversation.messages) > FEW_MESSAGES or has_own_limits:
        return False
    has_limit = policy.max_message_tokens is not None
    for message in conversation.messages:
        if (
            message.tool_calls
            or message.media
            or message.role is Role.TOOL
            or (has_limit and may_shorten(message, policy))
        ):
            return False
    tokens, limit = conversation.tokens, limits.limit
    return tokens < min(policy.high_water, 1 - PREFETCH_GAP) * (limit - tokens - limit // HEAD_STEPS - 1)


def _leave_alone(conversation: Conversation, limits: Limits, *, is_compaction: bool) -> Plan:
    """The plan of a transcript on which no rule acts.

    If no rule can act, it is equal to the one that `_decide` would make.
    """
    messages = conversation.messages
    task = next((index for index, message in enumerate(messages) if message.role is Role.USER), None)
    return Plan(
        original=conversation,
        conversation=conversation,
        whole=conversation,
        leading=count_leading(messages),
        hashes=hash_prefixes(messages),
        window=Window(task=task),
        request=None,
        prefetch=None,
        decisions=(),
        model_limit=limits.model_limit,
        limit=limits.limit,
        fitting=limits.fitting,
        hard_limit=limits.hard_limit,
        is_empty=True,
        is_client_compaction=is_compaction,
    )


def _decide(
    original: Conversation, paired: Outcome, replayed: Replayed, policy: Policy, state: TranscriptState, work: Work
) -> Plan:
    short, pins, window, limits = replayed.edited, replayed.pins, replayed.window, replayed.limits
    memories, users, stop = state.memory.bare, state.users.short, window.users_stop
    light = state.memory.drop(short.conversation, window.memory_stop) if memories else Outcome(short.conversation)
    limited = state.users.apply(light.conversation, stop) if stop else Outcome(light.conversation)
    fitted, recalled = Outcome(limited.conversation), replayed.recalled
    if window.caps:
        caps, pins = fit_pins(window.caps, pins, paired.conversation.messages)
        caps, recalled = fit_pins(caps, recalled, paired.conversation.messages) if recalled else (caps, recalled)
        whole = state.memory.drop(paired.conversation, window.memory_stop).conversation
        fitted = shorten_newest(limited.conversation, whole, caps, policy=policy, work=work)
    fitted = note_lost(fitted, window) if window.caps or (window.cuts and window.cuts[-1].lost) else fitted
    messages, head = fitted.conversation.messages, replayed.head
    return Plan(
        original=original,
        conversation=fitted.conversation,
        whole=limited.conversation,
        leading=state.leading,
        hashes=state.hashes,
        window=window,
        request=state.ask(messages, window),
        prefetch=request_prefetch(messages, state.hashes, window) if window.prefetch_tokens else None,
        decisions=head.decisions
        + (paired.decisions + short.decisions + light.decisions + limited.decisions + fitted.decisions),
        changed=head.changed + (paired.changed + short.changed + light.changed + limited.changed + fitted.changed),
        model_limit=limits.model_limit,
        limit=limits.limit,
        fitting=limits.fitting,
        hard_limit=limits.hard_limit,
        key=state.key,
        pins=tuple(pins.values()),
        recalled=tuple(recalled.values()) if recalled else (),
        cold=replayed.cold,
        memories=_list_before(memories, window.memory_stop, short.conversation) if memories else (),
        long_users=_list_before(users, stop, light.conversation) if users else (),
        stale=tuple(state.arguments.stale),
    )


def _list_before(places: Iterable[int], stop: int, conversation: Conversation) -> tuple[tuple[int, Message], ...]:
    return tuple([(at, conversation.messages[at]) for at in places if at < stop])


def is_client_compaction(conversation: Conversation) -> bool:
    """Whether a client asks for a summary of the conversation: in the last message or item, or by its system prompt.

    Such a request passes unchanged while that is possible: if a summary of ours stood in it, or a tool result were a
    placeholder, the client would summarise what is summarised already. Nothing that is kept for the session changes.
    """
    messages = conversation.messages
    if messages and messages[-1].wire_role == TRIGGER:
        return True
    if not messages or messages[-1].role is not Role.USER:
        return False
    if any(map(asks_for_summary, messages[-1].texts)):
        return True
    for message in messages:
        if message.role is not Role.SYSTEM:
            return False
        if any(map(instructs_to_summarise, message.texts)):
            return True
    return False


def may_pass(conversation: Conversation, policy: Policy, limits: Limits, work: Work) -> bool:
    """Whether a client's request for a summary can go out unchanged.

    It must fit the window together with its completion, and the request before it must have gone out without a cut, a
    placeholder or a removed image; else the upstream's prompt cache has the shorter prompt. Its calls and results must
    be paired. Raises LargeWorkError.
    """
    if conversation.tokens > limits.fitting:
        return False
    # A call without a result would be refused by the upstream, and was repaired in the request before.
    is_paired = conversation.continues or not pair_tool_calls(conversation, count=work.count).decisions
    if not is_paired or (found := _find_before(conversation, policy, work)) is None:
        return is_paired
    before, state = found
    replayed = state.replay(before, policy, limits, work)
    return not (replayed.head.decisions or replayed.window.shortens)


def was_edited(conversation: Conversation, policy: Policy, work: Work) -> bool:
    """Whether the request before a request that passes sent a message otherwise: truncated, say, or with a pin.

    Raises LargeWorkError.
    """
    if (found := _find_before(conversation, policy, work)) is None:
        return False
    before, state = found
    edited = state.edit(before, policy, work)
    if edited.decisions or state.find_pins(edited.conversation.messages, policy, work):
        return True
    is_compared = any(treatment.dedupe for treatment in policy.treatments())
    return is_compared and bool(state.dedupe(before, state.leading, policy, work).decisions)


def _find_before(conversation: Conversation, policy: Policy, work: Work) -> tuple[Conversation, TranscriptState] | None:
    """The paired transcript of the request before this one; None if there was none, or if the upstream holds it.

    With a state of its own: this request must not disturb the one that the session goes on from.
    """
    asked = count_asked(conversation.messages)
    if conversation.continues or not asked:
        return None
    before = replace(conversation, messages=conversation.messages[:asked], origins=conversation.origins[:asked])
    before = pair_tool_calls(before, count=work.count).conversation
    return before, take_state(None, before.messages, name_state(before.messages, policy, work))


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
    if (done := seen.find_outcome(plan, summary)) is not None:
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
    if (window.images.at or (cut is not None and cut.kept)) and (state is None or state.edits.has_media):
        without = remove_images(current, (index for index in window.without_images if index >= plan.leading))
        current, decisions = without.conversation, decisions + without.decisions
    if plan.stale and (stale := plan.stale_arguments):
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
        sizes = plan.original.tokens, current.tokens, plan.limit, policy.context_window
        raise LimitExceededError(*sizes, decisions, current, find_remainder(plan, current, policy))


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
        place = Carried(cut, task, policy.instruction_files, told="" if summary.by_model else summary.text)
        anchors = Anchors() if state is None else state.anchors
        carried = anchors.find(plan.whole.messages, place, count=count, spend=work.allowance.spend)
        summary = Summary(summary.text, summary.by_model, carried)
    known, role = None if state is None else state.spliced, policy.summary_role
    spliced, outcome = splice_summary(current, window=plan.window, summary=summary, role=role, count=count, known=known)
    if state is not None:
        state.spliced = spliced
    return outcome
