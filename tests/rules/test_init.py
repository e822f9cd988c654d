"""The public interface of the rules: what a library's user needs, and nothing else."""

import inspect
import subprocess
import sys
from dataclasses import replace

import pytest

from trimtab import rules
from trimtab.rules import (
    Conversation,
    Message,
    Policy,
    Role,
    Summary,
    apply,
    finish_message,
    plan,
    whole_elements,
    write_prompt,
)


def count(text: str) -> int:
    return len(text.split())


def test_whatever_is_public_says_what_it_promises() -> None:
    """Each name has a docstring of its own. The docstrings of type aliases are in the source."""
    for name, public in ((name, getattr(rules, name)) for name in rules.__all__):
        if inspect.isclass(public) or inspect.isfunction(public):
            assert len(vars(public).get("__doc__") or public.__doc__ or "") > 20, name


def test_no_other_name_is_public() -> None:
    assert set(rules.__all__) <= set(dir(rules))
    with pytest.raises(AttributeError, match=r"'trimtab\.rules' has no attribute 'plan_ahead'"):
        _ = rules.plan_ahead  # type: ignore[attr-defined]


def test_the_configuration_loads_no_rule() -> None:
    """Commands that only read it, as the check of a container's health does, start without them."""
    program = (
        "import sys, trimtab.proxy.config.load; print(*(n for n in sys.modules if n.startswith('trimtab.rules.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"trimtab.rules.policy", "trimtab.rules.economy"}


def test_a_transcript_is_compacted_by_public_names_alone() -> None:
    """The steps are: decide, get the text that the cut wants, and carry out."""
    words = "a line of words that says something " * 30
    turns = [(Role.USER, f"task {words}")]
    turns += [(role, f"{number} {words}") for number in range(40) for role in (Role.ASSISTANT, Role.USER)]
    messages = tuple(finish_message(Message(role, (text,)), count) for role, text in turns)
    before = Conversation(messages, 0, whole_elements(len(messages)))
    policy = Policy(context_window=8000, completion_reserve=500, keep_user_tokens=500)

    planned = plan(before, policy, count=count)
    assert planned.request is not None
    assert "task" in write_prompt(planned.request, base_text=None, max_tokens=2000, count=count)
    outcome = apply(planned, policy, count=count, summary=Summary("All went well so far.", by_model=True))
    assert outcome.conversation.tokens < before.tokens
    assert [decision.rule for decision in outcome.decisions][-1] == "summarise"
    assert any("All went well so far." in message.text for message in outcome.conversation.messages)
    roomy = replace(policy, context_window=1_000_000)
    assert apply(plan(before, roomy, count=count), roomy, count=count).conversation is before
