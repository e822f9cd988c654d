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
from support.builders import assistant, call, conversation, count, result, system, user, write_all
from trimtab.rules.pipeline.order import apply
from trimtab.rules.pipeline.order import plan
from trimtab.rules.policy import Budget, OnExceeded, Policy
from trimtab.rules.text.markers import NAMES_TITLE, TASK_LIST_TITLE
from trimtab.rules.summary.request import Summary

words = "alpha beta gamma delta error warning failed passed timeout module found result".split()
log = "\\n".join(
    f"{words[i * 7 % 12]} {words[i * 5 % 12]} in src/m{i % 37}.py:{i}: {words[i * 11 % 12]} {i % 13}"
    for i in range(300)
)
records = ",".join(
    '{"id": %d, "status": "%s", "amount": %d, "tags": ["%s", "%s"], "note": "%s"}'
    % (i, words[i % 9 * (i % 50 == 3)], i * 7919 % 997, words[i % 12], words[i % 5], words[i % 12] * 5)
    for i in range(100)
)
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
texts, rules = set(), set()
policy = Policy(
    context_window=12000, completion_reserve=0, on_exceeded=OnExceeded.FORWARD, anchor_share=0.3,
    result_budget=Budget(500),
)
for number in range(120):
    name, arguments, said = steps[number % 6]
    text = "".join(said.replace("%d", str(number + line)) for line in range(12))
    text = {7: log, 13: "[" + records + "]", 19: log.replace("m3.py", "m4.py")}.get(number % 24, text)
    messages.append(assistant(f"step {number}", call(f"c{number}", name, arguments.replace("%d", str(number)))))
    messages.append(result(f"c{number}", text))
    if number % 16 < 15:
        continue
    planned = plan(conversation(*messages), policy, count=count)
    for summary in (Summary("What was done.", by_model=True), None):
        outcome = apply(planned, policy, count=count, summary=summary if planned.request else None)
        rules |= {decision.rule for decision in outcome.decisions}
        texts.add(repr(write_all(outcome.conversation.messages)))
assert len(planned.window.cuts) >= 3, planned.window.cuts
assert {"truncate", "dedupe", "digest"} <= rules, rules
assert sum(NAMES_TITLE in text for text in texts) > len(texts) / 2
assert any(TASK_LIST_TITLE in text for text in texts)
print(sha256(repr(sorted(texts)).encode()).hexdigest())
"""


def test_every_process_forwards_the_same() -> None:
    """What becomes of results, and what is carried, is the same for two hash seeds: the sets here have many members."""
    assert len({_forward(seed) for seed in "01"}) == 1


def _forward(seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
