"""Sessions in which much is said and done, for what is written about removed messages: our data, talks, commands."""

from collections.abc import Sequence
from functools import cache

from support.builders import assistant, call, read, result, user
from support.chats import LANGUAGES, make_chat
from support.sessions import OWN_DATA, read_rows

from trimtab.rules.conversation import Message

COMMANDS = (
    ("cd /srv/quay && git status --short", " M src/quay/tides.py\n?? notes/plan.md"),
    ("cat src/quay/tides.py | head -50", "def ebb(level):\n    return level - TIDE_STEP\n"),
    ("sed -i 's/TIDE_STEP/TIDE_SIZE/' src/quay/tides.py", ""),
    ("pytest tests/test_tides.py", "FAILED tests/test_tides.py::test_ebb - NameError: name 'TIDE_SIZE' is not defined"),
    ("npm run serve --port 8123 > /tmp/serve.log 2>&1 &", "[1] 48213"),
    ("nohup ./bin/crane --watch cargo/ &", "[2] 48214"),
    ("docker run -d --name ledger-db -p 5432:5432 postgres:16", "4f1c" * 16),
    ("docker compose -f deploy/compose.yml up -d redis", "Container quay-redis-1  Started"),
    ("printf 'TIDE_SIZE = 3\\n' >> src/quay/sizes.py; cat src/quay/sizes.py", "TIDE_SIZE = 3"),
    ("pytest tests/test_tides.py", "1 passed in 0.12s"),
    ("kill %2", "[2]+  Terminated  nohup ./bin/crane --watch cargo/"),
    ("curl -s http://localhost:8123/health", "curl: (7) Failed to connect to localhost port 8123: Connection refused"),
    ("docker stop ledger-db", "ledger-db"),
    ("rm -f old/winch.py && mv src/quay/hoist.py src/quay/lift.py", ""),
    ("make -j4 all 2> build/errors.txt", "make: *** [Makefile:12: all] Error 2"),
    ("git commit -am 'Mend the ebb' && git log -1 --format=%H", "9e107d9d372bb6826bd81d3542a419d6fd61c1f7"),
    ("rg -n MooringError src", "src/quay/berth.py:88: raise MooringError(code=4711)"),
    ("sudo systemctl restart harbour-gate.service", "Job for harbour-gate.service failed. See journalctl -xe."),
)
CALLS = (
    ("Read", '{"file_path": "/srv/quay/README.md"}', "# Quay\nStart with `make all`; the key is QUAY_TOKEN_FILE."),
    ("Edit", '{"file_path": "/srv/quay/src/quay/berth.py", "old_string": "4711", "new_string": "4712"}', "updated"),
    ("Write", '{"file_path": "/srv/quay/notes/plan.md", "content": "- crane\\n- winch"}', "created"),
    ("str_replace_editor", '{"command": "view", "path": "src/quay/lift.py"}', "File not found: src/quay/lift.py"),
    (
        "Task",
        '{"description": "look into the winch", "prompt": "Why does it jam?"}',
        "Agent launched. agent_id: agent-77f",
    ),
    ("Bash", '{"command": "tail -f /var/log/gate.log", "run_in_background": true}', "running with session id sess-31"),
    ("http_get", '{"url": "https://api.harbour.example/v2/ships/IMO9074729"}', '{"ship": "Elbe", "imo": "IMO9074729"}'),
    (
        "apply_patch",
        '{"patch": "*** Update File: src/quay/sizes.py\\n-TIDE_SIZE = 3\\n+TIDE_SIZE = 4"}',
        "error: context",
    ),
)


@cache
def told_sessions() -> dict[str, Sequence[Message]]:
    """Each session's messages, without the instructions."""
    talks = {name.lower(): map(read, make_chat(language, turns=50)[0]) for name, language in LANGUAGES.items()}
    own = {name: _read_own(name) for name in ("agent", "desk", "talk")}
    told = {**own, **talks, "commands": _make_commands()}
    return {name: [each for each in messages if each.role != "system"] for name, messages in told.items()}


def _read_own(name: str) -> Sequence[Message]:
    session = next(read_rows(OWN_DATA / "conversations" / f"{name}.jsonl"))
    return [read(message) for message in session["messages"][:160]]


def _make_commands() -> Sequence[Message]:
    calls = [("Bash", f'{{"command": {_quote(command)}}}', said) for command, said in COMMANDS]
    messages = [user("Mend the ebb in /srv/quay, then start the gate. Never push to main; ask Anna for the key.")]
    for number, (name, arguments, said) in enumerate((*calls, *CALLS)):
        if number % 6 == 5:
            messages.append(
                assistant(f"Step {number} is done because the {name} call said so. Next I try berth {number}.")
            )
            messages.append(user(f"Good. Remember: port {9000 + number} is taken, and the deadline is May {number}."))
        messages.append(assistant(None, call(f"c{number}", name, arguments)))
        messages.append(result(f"c{number}", said))
    return messages


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
