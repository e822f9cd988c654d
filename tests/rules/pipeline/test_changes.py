"""What became of each message."""

from dataclasses import replace

from support.builders import (
    IMAGE,
    IMAGE_LINE,
    assistant,
    call,
    conversation,
    count,
    fill,
    read,
    result,
    session,
    user,
)
from support.policies import POLICY

from trimtab.rules.conversation import Conversation, Message, Origin, Role
from trimtab.rules.pipeline.changes import (
    OUTSIDE,
    Change,
    Fate,
    is_same,
    list_elements,
    match_origins,
    read_message,
    trace_changes,
)
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.policy import Budget, Policy, Tidying
from trimtab.rules.text.markers import INTRODUCTION
from trimtab.rules.window.prune import drop_images

WIDE = replace(POLICY, context_window=100_000)
BLANK_JSON = (
    "[" + ",".join(f'{{"row":        {number}, "text":          "row {number}"}}' for number in range(20)) + "]"
)


def trace_whole(whole: Conversation, policy: Policy = POLICY) -> tuple[Change, ...]:
    planned = plan(whole, policy, count=count)
    return trace_changes(planned, apply(planned, policy, count=count), 1.0)


def trace(messages: tuple[Message, ...], policy: Policy = POLICY) -> tuple[Change, ...]:
    """The changes of messages of which each is an element of the request."""
    return trace_whole(conversation(*messages), policy)


def test_each_kind_of_repair_is_told() -> None:
    """A result that is missing, one that nobody asked for, and one that came late."""
    messages = (
        user(),
        assistant(None, call("a", "bash"), call("b", "read")),
        user("Wait."),
        result("a", "late"),
        assistant("Done."),
        user("And?"),
        result("x", "Who asked?"),
    )
    moved, added, dropped = sorted(trace(messages, WIDE), key=lambda change: change.fate is Fate.REMOVED)[::1]
    kinds = {change.fate: change for change in (moved, added, dropped)}
    assert kinds.keys() == {Fate.MOVED, Fate.ADDED, Fate.REMOVED}
    assert (kinds[Fate.MOVED].at, kinds[Fate.MOVED].tool, kinds[Fate.MOVED].after) == (3, "bash", "late")
    assert (kinds[Fate.ADDED].at, kinds[Fate.ADDED].tool, kinds[Fate.ADDED].after) == (2, "read", "aborted")
    assert (kinds[Fate.REMOVED].at, kinds[Fate.REMOVED].before) == (6, "Who asked?")
    assert {change.rules for change in kinds.values()} == {("pairing",)}


def test_places_are_those_of_the_request() -> None:
    """Several results may share an element, and a system message may stand outside the list."""
    messages = (
        *session(0),
        assistant(None, call("a"), call("b")),
        result("a", fill("a", 900)),
        result("b", fill("b", 900)),
    )
    origins = (Origin(0, 0), Origin(0, 1), Origin(1, 2), Origin(2, 3, 0), Origin(2, 3, 1))
    changes = trace_whole(replace(conversation(*messages), origins=origins), WIDE)
    assert [(change.at, change.fate) for change in changes] == [(2, Fate.SHORTENED)] * 2
    assert [change.before[:2] for change in changes] == ["a ", "b "]
    assert OUTSIDE < 0


def test_equal_messages_are_told_apart_by_their_positions() -> None:
    """Their texts do not say which is left. Those outside the list, which have one position, keep their order."""
    before = conversation(user("Go on."), user("Go on."), user("Go on."))
    assert match_origins(before.origins, before.origins[1:]) == {1: 0, 2: 1}
    outside = (Origin(0, 0), Origin(0, 0), Origin(0, 1))
    assert match_origins(outside, outside) == {0: 0, 1: 1, 2: 2}


def test_a_message_may_stand_in_several_elements_or_in_none() -> None:
    """In Responses a message has several; a system message outside the list has none."""
    assert list_elements(Origin(3, 6)) == (3, 4, 5)
    assert list_elements(Origin(3, 4, 2)) == (3,)
    assert list_elements(Origin(0, 0)) == (OUTSIDE,)
    assert list_elements(None) == ()


def test_what_is_joined_gives_up_what_the_summary_cannot() -> None:
    """A user's name is lost where the summary takes the message in, and it may be longer than the summary."""
    named = read({"role": "user", "content": "Go on.", "name": fill("name", 400)})
    policy = replace(POLICY, keep_user_tokens=500)
    planned = plan(conversation(*session(19), named, *session(50)[2:]), policy, count=count)
    outcome = apply(planned, policy, count=count)
    changes = trace_changes(planned, outcome, 1.0)
    assert Fate.MOVED in {one.fate for one in changes}
    saved = sum(one.tokens_before - one.tokens_after for one in changes)
    assert saved == planned.original.tokens - outcome.conversation.tokens
    assert min(one.tokens_after for one in changes) >= 0


def test_only_what_trimtab_wrote_is_its_summary() -> None:
    quoted = Change(4, "user", "", Fate.SHORTENED, ("digest",), 3, 10, "", INTRODUCTION)
    assert not quoted.is_summary
    assert replace(quoted, fate=Fate.ADDED).is_summary
    assert not replace(quoted, fate=Fate.ADDED, after="aborted").is_summary


def blame(messages: tuple[Message, ...], policy: Policy) -> dict[int, tuple[str, ...]]:
    """The rules that changed each message of the client that was changed."""
    return {change.at: change.rules for change in trace(messages, policy) if change.fate is not Fate.ADDED}


def _read(*texts: str) -> tuple[Message, ...]:
    steps = [(assistant(None, call(f"r{number}")), result(f"r{number}", text)) for number, text in enumerate(texts)]
    return (user("Read."), *(message for step in steps for message in step), user("And now?"))


def test_tidying_and_truncation_are_told_apart() -> None:
    rows = "".join(f"\x1b[31mrow {number} is red\x1b[0m\n" for number in range(400))
    plain = "".join(f"row {number} is plain\n" for number in range(400))
    policy = replace(POLICY, context_window=100_000, tidying=Tidying())
    found = blame(_read(BLANK_JSON, plain, rows), policy)
    assert found == {2: ("tidy",), 4: ("truncate",), 6: ("tidy", "truncate")}


def test_each_rule_on_old_messages_is_named() -> None:
    """Of a result that was shortened before it was pruned or cut, both rules."""
    long = session(20, result_tokens=400)
    policy = replace(POLICY, result_budget=Budget(290), context_window=5950)
    assert blame(long, policy) == {at: ("truncate", "prune") if at < 22 else ("truncate",) for at in range(3, 42, 2)}
    cut = blame(session(40, result_tokens=400), policy)
    assert cut[2] == ("digest",)
    assert cut[3] == ("truncate", "digest")


def test_calls_and_images_are_lines() -> None:
    assert read_message(assistant("Look.", call("c", "bash", '{"x":1}'))) == 'Look.\nbash {"x":1}'
    assert read_message(user("See.", IMAGE)) == "See.\n(image of 85 tokens)"
    assert read_message(drop_images(user("See.", IMAGE))) == f"See.\n{IMAGE_LINE}"
    assert read_message(Message(Role.TOOL, ("ok",), wire_role="user", header="Output: ")) == "Output: ok"


def test_two_objects_of_one_message_are_the_same() -> None:
    """A state that is kept for a session holds messages of an earlier request."""
    message = user("See.", IMAGE)
    assert is_same(message, replace(message))
    assert not is_same(message, drop_images(message))
    assert not is_same(message, message.shorten(("Se",), 0))


def test_the_text_of_a_message_is_not_in_its_repr():
    assert "secret" not in repr(Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "secret", "secret"))


def test_a_change_is_described_without_texts_unless_they_are_asked_for():
    change = Change(1, "tool", "bash", Fate.PRUNED, ("prune",), 10, 3, "half \ud800 a pair", "after")
    figures = {"at": 1, "role": "tool", "tool": "bash", "fate": "pruned", "rules": ("prune",)}
    described = {**figures, "tokens_before": 10, "tokens_after": 3}
    assert change.describe() == described
    assert change.describe(with_texts=True) == {**described, "before": "half ? a pair", "after": "after"}
