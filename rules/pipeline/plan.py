"""The plan for one request.

Law: a value. order.py makes it and carries it out. Between the two, the shell waits once: for the summary
that `request` asks for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from trimtab.rules.conversation import Conversation, Decision, Message, Role, count_asked, ends_with_prefill
from trimtab.rules.pipeline.appended import Pin
from trimtab.rules.pipeline.shortening import MEMORY, TRUNCATE_USERS, Stale
from trimtab.rules.summary.request import SummaryRequest, request_summary
from trimtab.rules.text.markers import SUMMARY_START
from trimtab.rules.window.prune import PLACEHOLDER_TOKENS, saving_tokens
from trimtab.rules.window.state import ColdCut, Window

StateKey = tuple[int, bytes, int, int, tuple[bytes, ...]]
"""The counter, the policy's name, the number of leading messages, the number of messages, digests of the first message
behind the leading ones and of the newest."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions about one request.

    original: the client's transcript.
    conversation: the transcript after the rules that need no window, with its newest messages shortened to fit.
    whole: `conversation` before its newest messages were shortened.
    leading: the number of its messages at the start that always stay.
    hashes: hashes of the prefixes of `conversation`, by number of messages.
    request: the summary to get before `apply`; None if nothing was cut.
    prefetch: the summary that the next cut is expected to need; None if none is wanted yet.
    model_limit: tokens that the prompt is planned for, in the model's own tokens.
    limit, fitting, hard_limit: in our tokens. The size that the prompt is planned for; the size that fits together with
        the completion asked for, or the policy's soft limit if that is in effect and smaller; the size that the window
        holds at most.
    is_put_off: the last cut was taken back, because its summary is not there yet.
    is_empty: no rule acts.
    is_client_compaction: the client asks for a summary of its own, and the request passes unchanged.
    memories: the messages whose retrieved memory is dropped, as they were with it, by index.
    long_users: the user messages over the limit that are short, as they were before, by index.
    stale: calls with long arguments that may be shortened where results are pruned, as they became so.
    was_otherwise: what this plan leaves as it is has been sent otherwise in an earlier request of the session.
    cold: the cuts that were decided at a cold cache, by number of messages.
    pins: lines to append to results, oldest first; the results that are pruned or cut get none.
    recalled: passages from what was removed, each to append to a message, oldest first.
    changed: for each decision, the indexes of the messages that it changed.
    key: what the state of the transcript is kept under; None if none is kept.
    """

    original: Conversation
    conversation: Conversation
    whole: Conversation
    leading: int
    hashes: Sequence[bytes]
    window: Window
    request: SummaryRequest | None
    prefetch: SummaryRequest | None
    decisions: tuple[Decision, ...]
    model_limit: int
    limit: int
    fitting: int
    hard_limit: int
    is_put_off: bool = False
    is_empty: bool = field(default=False, compare=False)
    is_client_compaction: bool = field(default=False, compare=False)
    was_otherwise: bool = field(default=False, compare=False)
    pins: tuple[Pin, ...] = ()
    recalled: tuple[Pin, ...] = ()
    memories: tuple[tuple[int, Message], ...] = ()
    long_users: tuple[tuple[int, Message], ...] = ()
    stale: tuple[Stale, ...] = ()
    cold: Mapping[int, ColdCut] = field(default_factory=dict)
    changed: tuple[tuple[int, ...], ...] = field(default=(), compare=False)
    key: StateKey | None = field(default=None, compare=False)

    @property
    def stop(self) -> int:
        """The number of messages with which the next request begins: without a begun answer (a prefill)."""
        return len(self.hashes) - 1 - ends_with_prefill(self.conversation.messages)

    @property
    def here(self) -> bytes:
        """What the session is known by at this request."""
        return self.hashes[self.stop]

    def put_off(self) -> "Plan | None":
        """The plan without its last cut, for a summary that is not there yet; None if nothing was cut.

        The caller must check whether the request then fits, because `apply` never refuses this plan.
        """
        window = self.window.earlier
        if window is None:
            return None
        put_off = replace(self._put_back(window), window=window, prefetch=None, is_put_off=True)
        if self.window.cuts[-1].made_at <= count_asked(self.conversation.messages):
            put_off = replace(put_off, was_otherwise=True)  # the text of a cut that was in effect may have been lost
        return replace(put_off, request=request_summary(put_off.conversation.messages, self.hashes, window))

    def _put_back(self, window: Window) -> "Plan":
        """The plan with the retrieved memory and the long user messages that an earlier window still forwards."""
        messages, capped = self.conversation.messages, {cap.at for cap in self.window.caps}
        short = {at for at, _ in self.long_users if at < window.users_stop}
        whole = {at: message for at, message in self.long_users if at >= window.users_stop and at not in capped}
        filled = {at: message for at, message in self.memories if at >= window.memory_stop}
        filled = {at: message for at, message in filled.items() if at not in capped and at not in short}
        back = {**whole, **filled}
        if not back:
            return self
        kept_tokens = {
            TRUNCATE_USERS: sum(message.tokens - messages[at].tokens for at, message in whole.items()),
            MEMORY: sum(message.tokens - whole.get(at, messages[at]).tokens for at, message in filled.items()),
        }
        left = list(self._save_less(kept_tokens, {TRUNCATE_USERS: whole, MEMORY: filled}))
        return replace(
            self,
            conversation=_replace(self.conversation, back),
            whole=_replace(self.whole, back),
            decisions=tuple([decision for decision, _ in left]),
            changed=tuple([at for _, at in left]),
            memories=tuple(each for each in self.memories if each[0] not in filled),
            long_users=tuple(each for each in self.long_users if each[0] not in whole),
        )

    def _save_less(
        self, kept_tokens: Mapping[str, int], kept: Mapping[str, Mapping[int, Message]]
    ) -> Iterator[tuple[Decision, tuple[int, ...]]]:
        """The decisions if some rules leave messages whole again; without those that then save nothing.

        Both by rule: `kept` are these messages, `kept_tokens` is what they add.
        """
        for one, changed in zip(self.decisions, self.changed, strict=True):
            if one.rule not in kept_tokens or one.first_changed < self.leading:
                yield one, changed
            elif one.saved_tokens > kept_tokens[one.rule]:
                left = tuple([at for at in changed if at not in kept[one.rule]])
                yield replace(one, tokens_after=one.tokens_after + kept_tokens[one.rule]), left

    @property
    def breaks_past(self) -> bool:
        """Whether a message may be forwarded otherwise than in an earlier request of the session.

        What a rule does to a message from the first request on (a truncated result) breaks nothing. True stays true for
        the longer transcripts of a session.
        """
        return self.was_otherwise or self.window.changes_sent

    @property
    def forwarded_pins(self) -> tuple[Pin, ...]:
        start = max(self.window.cut.at if self.window.cut else 0, self.window.prune_stop)
        return tuple(pin for pin in self.pins if pin.at >= start)

    @property
    def forwarded_recalled(self) -> tuple[Pin, ...]:
        if not self.recalled:
            return ()
        window, messages = self.window, self.conversation.messages
        start = window.cut.at if window.cut else 0
        stays = (pin for pin in self.recalled if pin.at >= start)
        return tuple([pin for pin in stays if pin.at >= window.prune_stop or messages[pin.at].role is not Role.TOOL])

    @property
    def stale_arguments(self) -> Mapping[int, Stale]:
        """The calls that are forwarded with short arguments, by the index of their message."""
        if not self.stale:
            return {}
        window, cut = self.window, self.window.cut
        start = max(cut.at if cut else 0, self.leading)
        # Arguments go with the results: the call and the message that made it stale must both be pruned, or both bare.
        stays = {at for step in window.spared for at in range(*step)}
        bare = {at for step in (cut.bare_steps if cut else ()) for at in range(*step)}
        pruned = {at for at in range(start, window.prune_stop) if at not in stays}
        return {one.at: one for one in self.stale if {one.at, one.made_at} <= pruned or {one.at, one.made_at} <= bare}

    @property
    def reserved_tokens(self) -> int:
        """The most tokens that would be forwarded: with a summary of its full reserved size."""
        messages, window, cut = self.conversation.messages, self.window, self.window.cut
        head = {*range(self.leading), window.task} if cut else set()
        tokens: int = self.conversation.fixed_tokens + (cut.tokens if cut else 0)
        tokens += sum(messages[index].tokens for index in head if index is not None)
        without, pruned = set(window.without_images), set(window.pruned)
        for index in range(cut.at if cut else 0, len(messages)):
            message = messages[index]
            is_pruned = index in pruned and message.role is Role.TOOL and not (message.keep or message.loads)
            if index not in head:
                saved_tokens = saving_tokens(message) if index in without else 0
                tokens += min(message.tokens, PLACEHOLDER_TOKENS) if is_pruned else message.tokens - saved_tokens
        tokens -= sum(stale.saved_tokens for stale in self.stale_arguments.values())
        return tokens + sum(pin.tokens for pin in (*self.forwarded_pins, *self.forwarded_recalled))

    def keep_messages(self) -> "Plan":
        """The plan for callers that accept no other number of messages, such as gateways.

        Results before the cut become placeholders, instead of a summary of everything before it. The cut stays where it
        is, so that what is forwarded stays the same from request to request. It is longer than the plan says: calls and
        texts before the cut stay.
        """
        window, cut = self.window, self.window.cut
        if cut is not None:
            spared = (*cut.kept_steps, *(step for step in window.spared if step[0] >= cut.at))
            window = structs.replace(window, cuts=(), prune_stop=max(cut.at, window.prune_stop), spared=spared)
        return replace(self, window=window, request=None, prefetch=None)

    def find_prefix(self, forwarded: Conversation, at: int) -> Conversation | None:
        """The part of `forwarded` that comes from the messages before `at`; None if message `at` is not forwarded.

        None also if the summary stands behind it: the part alone does not say what was cut.
        """
        messages, wanted = forwarded.messages, self.conversation.messages[at]
        # Counted from the end, because equal messages may occur twice; our acknowledgement may shift them by one.
        last = len(messages) - (len(self.conversation.messages) - at)
        for stop in (last, last - 1):
            if 0 <= stop < len(messages) and _is_same(messages[stop], wanted):
                if any(SUMMARY_START in text for one in messages[stop:] if one.edited for text in one.texts):
                    return None
                return replace(forwarded, messages=messages[:stop], origins=forwarded.origins[:stop])
        return None


def _replace(conversation: Conversation, back: Mapping[int, Message]) -> Conversation:
    return conversation.edit([back.get(at, message) for at, message in enumerate(conversation.messages)])


def _is_same(forwarded: Message, message: Message) -> bool:
    """Whether a message is forwarded unchanged, or without its images only."""
    return forwarded is message or (
        forwarded.texts == message.texts and bool(message.raw) and forwarded.raw is message.raw
    )
