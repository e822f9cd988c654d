"""Cuts in small windows, through the pipeline."""

import re

import pytest
import tiktoken
from support.builders import FREE, assistant, conversation, fill, system, user

from trimtab.proxy.compaction.tokenizers.exact import count_pieces, make_counter
from trimtab.proxy.config.load import load_config
from trimtab.rules.pipeline.order import apply, plan
from trimtab.rules.text.markers import SUMMARY_END, SUMMARY_START

OWN = re.compile(
    r"\[(?:Summary of|It covers|trimtab: (?:quoted|end)|User messages|End of)"
    r"|## |> (?:Exact names|Removed lines)|\d+ earlier"
)
"""The beginnings of the lines that are trimtab's own: introduction, headings, titles of the index, closing line."""


@pytest.mark.parametrize("role", ["auto", "last"])
@pytest.mark.parametrize("window", [2048, 8192])
def test_what_a_cut_always_says_is_a_twentieth_of_the_limit_at_most(
    encoding: tiktoken.Encoding, window: int, role: str
) -> None:
    count = make_counter(count_pieces(encoding))
    settings = load_config(f"defaults: {{context_window: {window}, summary: {{role: {role}}}}}", environment={})
    policy, messages = settings.policy_for("m").to_policy(FREE), [system(), user("Look after the harbour.")]
    for number in range(window // 20):
        messages.append(assistant(f"Berth {number} of `src/quay_{number}.py` is free. " + fill("ship", 20)))
        messages.append(user(f"Put ship {number} there, never at 10.0.0.{number}. " + fill("ship", 20)))
    planned = plan(conversation(*messages), policy, count=count)
    sent = apply(planned, policy, count=count).conversation.messages
    (told,) = [text for message in sent for text in [message.text] if SUMMARY_START in text]
    assert SUMMARY_END in told
    own = [line for line in told.splitlines() if OWN.match(line)]
    assert len(own) >= 5
    assert sum(map(count, own)) <= 0.05 * planned.limit
