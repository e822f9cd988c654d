"""A coding agent fixes a program through the proxy, in a session several times larger than the window.

The upstream's model is scripted. The agent, its tools and its transcript are real.
"""

import sys
from pathlib import Path

import orjson
import pytest
from clients.coding_agents import AGENTS
from clients.dialects import DIALECTS, Dialect
from programs.processes import run_program
from support.wire_tap import WireTap
from upstreams.scripted import Call, Turn, refuse_flatly
from upstreams.speech.responses import read_tools
from upstreams.strict import StrictModel

WRONG, RIGHT = "return length - draught", "return depth - draught"
PROGRAM = f'''"""How much water is left under a keel."""


def clearance(depth, length, draught):
    """In metres."""
    {WRONG}
'''
CHECK = "from harbour import clearance; assert clearance(12, 90, 7) == 5; print('all', 'well')"
NOTES = 20
TASK = "harbour.py reckons a wrong clearance. Find out why, and mend it."


def write_project(directory: Path) -> None:
    """Write a small program with a bug, and long notes."""
    directory.mkdir()
    (directory / "harbour.py").write_text(PROGRAM)
    for number in range(NOTES):
        lines = (f"On day {day} of month {number} the pilot sounded {day + number} metres." for day in range(90))
        (directory / f"notes_{number}.md").write_text("\n".join(lines))


def make_script(directory: Path) -> list[Turn]:
    """See the program fail, read the notes and the program, fix it, see it work."""
    program = str(directory / "harbour.py")
    check = Call("run", {"command": f'{sys.executable} -c "{CHECK}"'})
    notes = [Call("read", {"path": str(directory / f"notes_{number}.md")}) for number in range(NOTES)]
    return [
        Turn("I see whether it works.", (check,)),
        *(Turn("I read on in the notes.", (note,)) for note in notes),
        Turn("Now the program.", (Call("read", {"path": program}),)),
        Turn("I mend it.", (Call("edit", {"path": program, "old": WRONG, "new": RIGHT}),)),
        Turn("I look again.", (check,)),
        Turn("The clearance is right now."),
    ]


@pytest.mark.parametrize("knows", [pytest.param(True, id="configured"), pytest.param(False, id="unknown")])
@pytest.mark.parametrize("agent", [agent.parameter for agent in AGENTS])
async def test_an_agent_finishes_its_task(agent, knows, upstream, start_tapped, log, tmp_path):
    """The agent fixes the program, and all requests forwarded are valid, with and without a configured window."""
    project = tmp_path / "project"
    write_project(project)
    refusal = refuse_flatly if agent.dialect == "chat" else None
    model = StrictModel(make_script(project), agent.window_tokens, fit=agent.fit, refusal=refusal)
    upstream.answer = model.answer
    tap = await start_tapped(*([f"defaults.context_window={agent.window_tokens}"] if knows else ()))
    environment = agent.prepare(tmp_path, tap.url)
    command = (str(agent.program), *agent.words, TASK)
    ended = await run_program(command, tmp_path, environment, directory=project, limit_seconds=180)
    assert ended.status == 0, ended.err
    assert (project / "harbour.py").read_text() == PROGRAM.replace(WRONG, RIGHT)
    check_forwarded(DIALECTS[agent.dialect], tap, model)
    assert len([item for item in model.refused if not item.asks_for_summary]) == (0 if knows else 1)
    assert any(line["decisions"] for line in log.lines if line["event"] == "request")


def check_forwarded(dialect: Dialect, tap: WireTap, model: StrictModel) -> None:
    """Each turn was requested once. Forwarded requests are valid, contain the newest result, and needed compaction."""
    originals = [body for body in tap.bodies if read_tools(orjson.loads(body))]
    sent = [item for item in model.accepted if read_tools(item.json) and not item.asks_for_summary]
    assert len(originals) == len(sent) == len(model.turns)
    assert model.invalid == []
    for original, forwarded in zip(originals, sent, strict=True):
        assert dialect.check(original, forwarded.body) == []
    assert "AssertionError" in next(dialect.read_results(orjson.loads(originals[-1])))
    *_, newest = dialect.read_results(sent[-1].json)
    assert "all well" in newest
    assert len(originals[-1]) / 4 > model.window_tokens
