"""Processes decide alike: nothing depends on the order of a set, which is different in each process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
sys.path[:0] = ["tests"]
from hashlib import sha256
from support.builders import assistant, call, conversation, count, result, system, user
from trimtab.rules.pipeline.order import apply
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import OnExceeded, Policy

words = "alpha beta gamma delta error warning failed passed timeout module found result".split()
log = "\\n".join(
    f"{words[i * 7 % 12]} {words[i * 5 % 12]} in src/m{i % 37}.py:{i}: {words[i * 11 % 12]} {i % 13}"
    for i in range(900)
)
records = ",".join(
    '{"id": %d, "status": "%s", "amount": %d, "tags": ["%s", "%s"], "note": "%s"}'
    % (i, words[i % 9 * (i % 50 == 3)], i * 7919 % 997, words[i % 12], words[i % 5], words[i % 12] * 5)
    for i in range(300)
)
page = "".join(f"{number}\\tdef function_{number}(argument):\\n" for number in range(600))
texts = [log, "[" + records + "]", page, log.replace("m3.py", "m4.py"), page, '{"data": {%s}}' % ",".join(
    f'"k{i}": {{"v": {i % 7}, "w": "{words[i % 12]}"}}' for i in range(200)
)]
messages = [system(), user("Mend it.")]
for number in range(24):
    name = f"tool_{number % 3}"
    messages.append(assistant(f"step {number}", call(f"c{number}", name, '{"query": "function_77 gamma"}')))
    messages.append(result(f"c{number}", texts[number % 6] + "\\n" * (number % 2)))
policy = Policy(
    context_window=9000, completion_reserve=0, high_water=0.8, low_water=0.4, anchor_share=0.3,
    on_exceeded=OnExceeded.FORWARD,
)
given = conversation(*messages)
planned = plan(given, policy, count=count)
outcome = apply(planned, policy, count=count)
rules = {decision.rule for decision in outcome.decisions}
assert {"truncate", "dedupe"} <= rules or {"truncate", "prune"} <= rules, rules
print(sha256(repr([message.texts for message in outcome.conversation.messages]).encode()).hexdigest())
"""


CARRYING = """
import sys
sys.path[:0] = ["tests"]
from hashlib import sha256
from support.builders import assistant, call, conversation, count, result, system, user, write_all
from trimtab.rules.pipeline.order import apply
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import OnExceeded, Policy
from trimtab.rules.text.markers import NAMES_TITLE, TASK_LIST_TITLE
from trimtab.rules.summary.request import Summary

todo = '{"todos": [{"content": "mend part %d", "status": "pending"}, {"content": "tell", "status": "completed"}]}'
steps = [
    ("read_file", '{"path": "src/harbour/part_%d.py"}', "def mooring_%d(berth_id): return TIDE_TABLE[%d]\\n"),
    ("bash", '{"command": "pytest tests/t_%d.py"}', "src/x_%d.py:%d: KeyError: 'HB-1%d'\\nexit code 1\\n"),
    ("TodoWrite", todo, "ok %d"),
    ("read_file", '{"path": "AGENTS.md", "offset": %d}', "# Run `make check-%d`\\n"),
    ("bash", '{"command": "make serve-%d &"}', "https://harbour.example.org/berths/%d started, pid 4%d\\n"),
    ("write_file", '{"path": "src/quay_%d/__init__.py", "content": "x"}', "written %d"),
]
messages = [system(), user("Mend `harbour_main` for ticket HB-77, and keep docs/harbour.md as it is.")]
texts = set()
policy = Policy(context_window=12000, completion_reserve=0, on_exceeded=OnExceeded.FORWARD, anchor_share=0.3)
for number in range(160):
    name, arguments, said = steps[number % 6]
    text = "".join(said.replace("%d", str(number + line)) for line in range(12))
    messages.append(assistant(f"step {number}", call(f"c{number}", name, arguments.replace("%d", str(number)))))
    messages.append(result(f"c{number}", text))
    if number % 16 < 15:
        continue
    planned = plan(conversation(*messages), policy, count=count)
    for summary in (Summary("What was done.", by_model=True), None) if planned.request else ():
        outcome = apply(planned, policy, count=count, summary=summary)
        texts.add(repr(write_all(outcome.conversation.messages)))
assert len(planned.window.cuts) >= 3, planned.window.cuts
assert sum(NAMES_TITLE in text for text in texts) > len(texts) / 2
assert any(TASK_LIST_TITLE in text for text in texts)
print(sha256(repr(sorted(texts)).encode()).hexdigest())
"""
SEEDS = "01"


def test_every_process_forwards_the_same() -> None:
    """What becomes of results, and what is carried, is the same for two hash seeds: the sets here have many members."""
    results, carried = zip(*(_forward(seed) for seed in SEEDS), strict=True)
    assert len(set(results)) == len(set(carried)) == 1


def _forward(seed: str) -> list[str]:
    """What a process with this hash seed forwards."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + CARRYING],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
