"""Background processes and sub-agents that were started and not ended since."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import assistant, result, transcripts, user
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.summary.running import MAX_RUNNING, TITLE_CHARS, blank_texts, find_running

SERVER = step("bash", {"command": "python server.py --port 8000 > out.log 2>&1 &"}, "[1] 41297")
AGENT = step("Task", {"description": "Read docs", "prompt": "Read all"}, "agentId: a81f3c (to go on)")
SHELL = step("Bash", {"command": "npm run dev", "run_in_background": True}, "Running in background with ID: bash_2")


def run(command: str, said: str = "ok") -> list[Message]:
    """A command line."""
    return step("bash", {"command": command}, said)


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        (SERVER, "python server.py --port 8000 > out.log 2>&1 & (pid 41297)"),
        (AGENT, 'Task {"description":"Read docs","prompt":"Read all"} (agentId a81f3c)'),
        (run("nohup ./worker", "pid is 4242"), "nohup ./worker (pid 4242)"),
        (run("sleep 999 & echo $!", "process id: 77"), "sleep 999 & echo $! (process id 77)"),
        (step("spawn_agent", {"message": "go"}, '{"agent_id": "01ab-cd"}'), "agent_id 01ab-cd"),
        (step("run_terminal", {"command": "make watch", "is_background": True}, "Shell ID: 5f"), "make watch"),
    ],
)
def test_started_processes_are_listed_with_their_ids(begun: list[Message], told: str) -> None:
    """Whatever follows it, and however long ago it was."""
    (row,) = find_running(begun)
    assert told in row
    assert find_running([*begun, *run("ls"), *[user()] * 2000]) == (row,)


@pytest.mark.parametrize(
    "one",
    [
        run("make && make test"),
        run("make 2>&1"),
        run("curl 'https://x.example/?a=1&b=2'"),
        step("TaskCreate", {"subject": "a"}),
        step("task_tracker", {"command": "plan"}),
        step("TaskOutput", {"task_id": "a81f3c"}),
        step("bash", "no JSON &"),
    ],
)
def test_calls_that_end_by_themselves_are_not_running(one: list[Message]) -> None:
    """A task list is not a list of agents, either."""
    assert find_running(one) == ()


BASH_7 = step(
    "Bash", {"command": "make watch", "run_in_background": True}, "Command running in background with ID: bash_7"
)
CODEX = step("exec_command", {"cmd": "make watch"}, "Process running with session ID 12345")
COMPOSE = run("docker compose up -d", "Container web Started")


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        (BASH_7, "make watch (ID bash_7)"),
        (CODEX, "make watch (session ID 12345)"),
        (COMPOSE, "docker compose up -d"),
        (run("docker run -d web", "0123456789ab" + "c" * 52), "docker run -d web (container 0123456789ab)"),
        (step("Task", {"prompt": "go"}, "Async agent launched successfully.\nagentId: a1b2c3d4"), "(agentId a1b2c3d4)"),
        (step("Task", {"prompt": "go"}, "Task was launched in the background."), 'Task {"prompt":"go"}'),
        (run("pkill -f old.py; nohup python new.py &"), "new.py"),
        (run("bash -c 'nohup ./serve'"), "./serve"),
    ],
)
def test_ids_in_each_clients_form_are_listed(begun: list[Message], told: str) -> None:
    """With their labels."""
    (row,) = find_running(begun)
    assert told in row


@pytest.mark.parametrize(
    ("begun", "ending"),
    [
        (BASH_7, step("KillShell", {"shell_id": "bash_7"}, "Killed")),
        (BASH_7, step("BashOutput", {"bash_id": "bash_7"}, "<status>completed</status>")),
        (BASH_7, step("BashOutput", {"bash_id": "bash_7"}, "<status>killed</status>")),
        (CODEX, step("write_stdin", {"session_id": 12345}, "Process exited with code 0")),
        (COMPOSE, run("docker compose down -v")),
        (SERVER, run("kill %1")),
    ],
)
def test_what_has_ended_is_not_running(begun: list[Message], ending: list[Message]) -> None:
    """In each client's form, unless the call was refused."""
    assert find_running([*begun, *ending]) == ()
    refused = [ending[0], result(ending[0].tool_calls[0].id, "The user doesn't want to proceed")]
    assert len(find_running([*begun, *refused])) == 1


def test_looking_at_a_job_does_not_end_it() -> None:
    """It is listed unchanged. `kill %1` ends only the newest job."""
    looks = step("write_stdin", {"session_id": 12345}, "Process running with session ID 12345")
    assert find_running([*CODEX, *looks]) == find_running(CODEX)
    looks = step("BashOutput", {"bash_id": "bash_7"}, "<status>running</status>")
    assert find_running([*BASH_7, *looks]) == find_running(BASH_7)
    assert find_running([*BASH_7, *SERVER, *AGENT, *run("kill %1")]) == find_running([*BASH_7, *AGENT])


@pytest.mark.parametrize(
    "one",
    [
        step("Task", {"prompt": "Look"}, "Found. The server is started in the background by main.py"),
        step("Task", {"prompt": "Look"}, "I have read all files: the cause is in a.py."),
        *(
            step(name, {"task": "a"}, "task_id: 7")
            for name in ("run_task", "complete_task", "add_task", "agent_status")
        ),
        run("grep -rn setsid src/"),
        run('git commit -m "drop nohup &"'),
        run("cat > a.sh <<EOF\nserver &\nEOF\nls"),
        run("./server &", "bash: ./server: not found\nexit code: 127"),
        step("Bash", {"command": "x", "run_in_background": True}, "<tool_use_error>no</tool_use_error>"),
        run("cat notes.md", "Running in background with ID: bash_7"),
    ],
)
def test_calls_without_a_background_process_are_not_running(one: list[Message]) -> None:
    """The call has answered, has failed, or is only text."""
    assert find_running(one) == ()


def test_unanswered_calls_are_not_running() -> None:
    """It is unknown whether it started."""
    assert find_running(SERVER[:1]) == ()
    assert find_running([result("c", "[1] 41297")]) == ()


@pytest.mark.parametrize(
    "ending",
    [
        run("kill 41297"),
        run("cd /work && kill -9 41297; echo done"),
        run("pkill -f server.py"),
        run("lsof -ti:8000 | xargs kill -9"),
        step("KillShell", {"shell_id": "41297"}),
        step("process_stop", {"pid": 41297}),
    ],
)
def test_what_was_ended_is_not_running(ending: list[Message]) -> None:
    """The id or the name may be in the removed part or in the tail. What is started after that is running."""
    assert find_running([*SERVER, *ending]) == ()
    assert find_running(SERVER, ending) == ()
    assert len(find_running([*SERVER, *ending, *SERVER])) == 1


@pytest.mark.parametrize(
    "other",
    [
        run("kill 99999"),
        run("kill 99999; python other.py"),
        run("grep -n close server.py"),
        step("edit_file", {"path": "server.py", "text": "socket.close()  # stop"}),
        step("KillProcess", {"pid": 99999}),
        step("close_file", {"path": "a.py"}),
        run("docker stop web"),
    ],
)
def test_ending_something_else_ends_no_entry(other: list[Message]) -> None:
    """A file that mentions an end ends nothing either."""
    assert len(find_running([*SERVER, *other])) == 1
    assert len(find_running(SERVER, other)) == 1


def test_processes_started_in_the_tail_are_not_listed() -> None:
    """The reader sees it in the tail."""
    assert find_running(run("ls"), SERVER) == ()


def test_only_the_newest_are_listed() -> None:
    """Each has a bounded length; the same command started again is one entry."""
    many = (run(f"./work-{number} {'x ' * 400} &", f"[1] {10000 + number}") for number in range(40))
    rows = find_running([message for one in many for message in one])
    assert len(rows) == MAX_RUNNING
    assert [f"pid {10000 + number}" in row for number, row in enumerate(rows, 40 - MAX_RUNNING)] == [True] * MAX_RUNNING
    assert all(len(row) <= 3 * TITLE_CHARS + 10 for row in rows)
    assert len(find_running([*SHELL, *SERVER, *SHELL])) == 2
    assert "npm run dev" in find_running([*SHELL, *SERVER, *SHELL])[-1]


@given(messages=transcripts(), tail=transcripts())
def test_any_transcript_is_read(messages: tuple[Message, ...], tail: tuple[Message, ...]) -> None:
    """A tail can only remove entries."""
    assert set(find_running(messages, tail)) <= set(find_running(messages))
    assert find_running(messages, (assistant("Fine."),)) == find_running(messages)


# The parts of a command line that the shell executes.


@pytest.mark.parametrize(
    ("command", "blanked"),
    [
        ("make all &", "make all &"),
        ("echo 'a & b' &", "echo _______ &"),
        ('echo "a \\" & b" x', "echo __________ x"),
        ("ls # a &", "ls _____"),
        ("echo 'open &", "echo _______"),
        ("cat <<EOF > f\nx &\nEOF\nls &", "cat <<EOF > f\n       \nls &"),
        ("cat <<'E' &\nx", "cat <<___ &\n "),
        ("bash -c 'x &'", "bash -c \nx &\n"),
    ],
)
def test_texts_are_blanked(command: str, blanked: str) -> None:
    """Except a command line that is given to another shell."""
    assert blank_texts(command) == blanked


@given(command=st.text(st.sampled_from("ab '\"\\\n#<E&c-sh"), max_size=60))
def test_each_index_stays_valid(command: str) -> None:
    """The length of any line is unchanged."""
    assert len(blank_texts(command)) == len(command)
