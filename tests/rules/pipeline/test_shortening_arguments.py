"""Long arguments of calls: which are stale, what is left of them, and that it is replayed."""

import json  # noqa: TID251 - the laws hold for JSON in any form, such as ASCII
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.append_law import check_append_law, run
from support.builders import KeptStates, assistant, call, conversation, count, fill, result, system, user
from support.policies import POLICY

from trimtab.rules.conversation import Arguments, Message, ToolCall
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.pipeline.shortening import (
    ARGUMENTS,
    KEPT_TOKENS,
    LONG_TOKENS,
    MOST_WAITING,
    LongArguments,
    shorten_call,
)
from trimtab.rules.pipeline.story import tell_story
from trimtab.rules.policy import Budget, OverflowStrategy, Policy, ToolRule, Treatment
from trimtab.rules.results.work import Allowance, LargeWorkError, Work
from trimtab.rules.text.markers import NO_RESULT, START

ROOMY = replace(POLICY, context_window=9000)
PRUNING = replace(ROOMY, overflow_strategy=OverflowStrategy.PRUNE)
TEXT = fill("what is in the file", 1200)
DONE = "The file was written."


def write(number: int, text: str = TEXT, path: str = "", name: str = "write_file") -> ToolCall:
    return call(f"w{number}", name, json.dumps({"path": path or f"src/{number}.py", "content": text, "mode": 7.0}))


def step(number: int, *calls: ToolCall, said: str = DONE) -> list[Message]:
    return [assistant(f"step {number}", *calls), *(result(one.id, said) for one in calls)]


def writing(steps: int) -> tuple[Message, ...]:
    written = (message for number in range(steps) for message in step(number, write(number)))
    return (system(), user("Write the files."), *written)


def find_stale(messages: Sequence[Message], policy: Policy = PRUNING) -> list[tuple[int, int]]:
    """The messages whose calls are stale, each with the message that made them so."""
    found = LongArguments()
    found.extend(messages, 0, policy, Work(count))
    return [(one.at, one.made_at) for one in found.stale]


def test_a_call_is_stale_once_its_own_result_says_nothing_of_a_failure() -> None:
    assert find_stale([user(), *step(1, write(1))]) == [(1, 2)]
    assert find_stale([user(), *step(1, write(1), write(2))]) == [(1, 2), (1, 3)]


@pytest.mark.parametrize("said", ["Error: disk is full", NO_RESULT, "The user doesn't want to proceed"])
def test_a_call_that_failed_is_stale_only_when_a_later_step_has_the_file(said: str) -> None:
    """Until then, the call is the only place of the text. A later call of the same step proves nothing."""
    failed = [user(), *step(1, write(1, path="a/b.py"), said=said)]
    assert find_stale(failed) == []
    assert find_stale([*failed, *step(2, call("r", "read_file", '{"path":"c.py"}'))]) == []
    both = assistant(None, write(1, path="a/b.py"), call("r", "read_file", '{"path":"a/b.py"}'))
    assert find_stale([user(), both, result("w1", said), result("r", DONE)]) == []
    assert find_stale([*failed, *step(2, call("r", "read_file", '{"path":"a/b.py"}'), said="No such file")]) == []
    assert find_stale([*failed, *step(2, call("r", "read_file", '{"path":"/x/a/b.py"}'))]) == [(1, 4)]
    assert find_stale([*failed, *step(2, call("r", "write_file", '{"path":"a/b.py","content":"x"}'))]) == [(1, 4)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("str_replace", {"path": "a.py", "old_str": TEXT, "new_str": "x"}),
        ("multi_edit", {"file_path": "a.py", "edits": [{"old": TEXT, "new": TEXT}]}),
        ("bash", {"command": f"cat > a.py <<'EOF'\n{TEXT}\nEOF"}),
        ("shell", {"command": ["apply_patch", f"*** Begin Patch\n*** Update File: a.py\n{TEXT}"]}),
        ("apply_patch", {"input": f"*** Begin Patch\n*** Add File: a.py\n+{TEXT}"}),
    ],
)
def test_edits_patches_and_here_documents_write_files_too(name: str, arguments: dict[str, object]) -> None:
    assert find_stale([user(), *step(1, call("1", name, json.dumps(arguments)))]) == [(1, 2)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a.py", "content": "short"}),
        ("read_file", {"path": "a.py", "reason": TEXT}),
        ("run_agent", {"prompt": TEXT}),
        ("bash", {"command": f"python - <<'EOF'\n{TEXT}\nEOF"}),
    ],
)
def test_other_calls_stay(name: str, arguments: dict[str, object]) -> None:
    assert find_stale([user(), *step(1, call("1", name, json.dumps(arguments)))]) == []


def test_what_must_stay_stays() -> None:
    """What the client wants kept, what the dialect cannot write back, and what the policy exempts."""
    wanted = [user(), *step(1, write(1))]
    assert find_stale([wanted[0], replace(wanted[1], keep=True), wanted[2]]) == []
    assert find_stale([*wanted[:2], replace(wanted[2], keep=True)]) == []
    fixed = replace(write(1), shortens=Arguments.FIXED)
    assert find_stale([wanted[0], replace(wanted[1], tool_calls=(fixed,)), wanted[2]]) == []
    for treatment in (Treatment(Budget(9), is_exempt=True), Treatment(Budget(9), exempt_arguments=("src/*",))):
        assert find_stale(wanted, replace(PRUNING, tools=(ToolRule("write_*", treatment),))) == []
    found = LongArguments()
    found.extend(wanted, 0, PRUNING, Work(count, drops_calls=True))  # the server leaves calls out: nothing to save
    assert (found.stale, found.tokens) == ([], {})
    other = Treatment(Budget(9), exempt_arguments=("docs/*",))
    assert find_stale(wanted, replace(PRUNING, tools=(ToolRule("write_*", other),))) == [(1, 2)]


def test_of_failed_calls_only_the_newest_are_waited_for() -> None:
    """That bounds the work for each later call."""
    failed = [one for n in range(MOST_WAITING + 1) for one in step(n, write(n), said="Error: disk is full")]
    for number, stale in ((0, []), (1, [(2, 2 * MOST_WAITING + 3)])):
        read = step(99, call("r", "read_file", f'{{"path":"src/{number}.py"}}'))
        assert find_stale([*failed, *read]) == stale


def test_short_arguments_are_neither_read_nor_counted() -> None:
    """Most calls are short. So a request with only such calls costs nothing more."""
    text = "x" * (LONG_TOKENS - len('{"path":"a","content":""}'))
    short = call("1", "write_file", f'{{"path":"a","content":"{text}"}}')
    LongArguments().extend([user(), *step(1, short)], 0, PRUNING, Work(count, allowance=Allowance(0)))
    read = call("1", "read_file", json.dumps({"path": "a.py", "reason": TEXT}))
    with pytest.raises(LargeWorkError):
        LongArguments().extend([user(), *step(1, read)], 0, PRUNING, Work(count, allowance=Allowance(0)))
    seen: list[str] = []
    shorten_call(assistant(None, call("1", "f", f'{{"a":"{"x" * LONG_TOKENS}"}}')), 0, Work(seen.append))  # type: ignore[arg-type] # must not be called
    assert not seen


_TEXTS = st.text(max_size=40) | st.builds(lambda text, number: f"{text}\n" * number, st.text(), st.integers(0, 900))
_JSON = st.dictionaries(
    st.text(max_size=9),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS, st.lists, max_leaves=5
    ),
    max_size=4,
)


@given(arguments=_JSON, is_ascii=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_only_long_strings_change(arguments: dict[str, object], is_ascii: bool, indent: int | None) -> None:  # noqa: FBT001
    """Keys, types, numbers and short strings stay; what is left of a long one is within its bound, and says so."""
    written = json.dumps(arguments, ensure_ascii=is_ascii, indent=indent)
    short = shorten_call(assistant(None, call("1", "write_file", written)), 0, Work(count)).arguments

    def check(before: object, after: object) -> None:
        if isinstance(before, dict):
            assert isinstance(after, dict)
            assert list(before) == list(after)
            for key, value in before.items():
                check(value, after[key])
        elif isinstance(before, list):
            assert isinstance(after, list)
            for one, other in zip(before, after, strict=True):
                check(one, other)
        elif isinstance(before, str) and count(before) > LONG_TOKENS:
            assert isinstance(after, str)
            assert after == before or (count(after) <= KEPT_TOKENS and START in after)
        else:
            assert (type(before), repr(before)) == (type(after), repr(after))

    check(json.loads(written), json.loads(short))


def test_a_text_that_is_no_json_is_shortened_as_a_text_only_where_the_dialect_says_so() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n" + TEXT
    message = assistant(None, call("1", "apply_patch", patch))
    assert shorten_call(message, 0, Work(count)) is message.tool_calls[0]
    free = replace(message, tool_calls=(replace(message.tool_calls[0], shortens=Arguments.TEXT),))
    assert count(shorten_call(free, 0, Work(count)).arguments) <= KEPT_TOKENS


def test_a_text_and_json_that_say_the_same_are_shortened_each_in_its_own_way() -> None:
    """Messages with the same digest share the caches, also those of two clients."""
    as_json, work = assistant("step", write(1)), Work(count)
    as_text = replace(as_json, tool_calls=(replace(write(1), shortens=Arguments.TEXT),))
    assert as_json.digest == as_text.digest
    alone = shorten_call(as_json, 0, Work(count))
    assert shorten_call(as_text, 0, work) != alone
    assert shorten_call(as_json, 0, work) == alone


def test_old_writes_are_shortened_with_the_prune_and_the_tokens_are_exact() -> None:
    """The calls before the place of the prune; the newest step stays. The window counts with what is saved."""
    messages = writing(8)
    planned, outcome = run(conversation(*messages), PRUNING)
    (decision,) = outcome.decisions
    assert decision.rule == ARGUMENTS
    stop = planned.window.prune_stop
    for at, (before, after) in enumerate(zip(messages, outcome.conversation.messages, strict=True)):
        assert after.edited is (bool(before.tool_calls) and at < stop)
        assert after.tokens + after.saved_tokens == before.tokens
        assert START not in before.tool_calls[0].arguments if before.tool_calls else True
    assert outcome.conversation.messages[-2] is messages[-2]
    assert planned.reserved_tokens >= outcome.conversation.tokens
    (_, sentence) = tell_story(planned, outcome).sentences
    assert sentence.text.startswith("Long arguments of calls in ")
    assert sentence.saved_tokens == decision.saved_tokens > 0
    assert all(one.rules == (ARGUMENTS,) for one in tell_story(planned, outcome).changes)


@given(
    steps=st.lists(st.sampled_from(["write", "fail", "read", "long"]), min_size=4, max_size=14),
    strategy=st.sampled_from([OverflowStrategy.PRUNE, OverflowStrategy.AUTO_COMPACT]),
    low=st.sampled_from([0.4, 0.6]),
)
@settings(max_examples=10)
def test_the_prefix_stays_and_states_change_nothing(steps: list[str], strategy: OverflowStrategy, low: float) -> None:
    """What was forwarded of a call stays so until the window prunes or cuts again, with and without states."""
    policy = replace(ROOMY, overflow_strategy=strategy, low_water=low)
    messages: list[Message] = [system(), user("Write the files.")]
    for number, kind in enumerate(steps):
        made = call(f"r{number}", "read_file", f'{{"path":"src/{number - 1}.py"}}') if kind == "read" else write(number)
        said = {"fail": "Error: disk is full", "long": fill("long", 250)}.get(kind, DONE)
        messages += step(number, made, said=said)
    check_append_law(tuple(messages), policy, every=2)
    states = KeptStates()
    for stop in range(2, len(messages) + 1, 2):  # each step is a call and its result
        grown = conversation(*messages[:stop])
        planned = plan(grown, policy, count=count, states=states)
        assert apply(planned, policy, count=count, states=states) == apply(
            plan(grown, policy, count=count), policy, count=count
        )
