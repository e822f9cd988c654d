"""Background processes and sub-agents that were started and not ended since."""

from hypothesis import given
from hypothesis import strategies as st
from support.builders import result, user
from support.tool_steps import step

from trimtab.rules.conversation import Message
from trimtab.rules.summary.running import MAX_RUNNING, TITLE_CHARS, blank_texts, find_running

SERVER = step("bash", {"command": "python server.py --port 8000 > out.log 2>&1 &"}, "[1] 41297")
AGENT = step("Task", {"description": "Read docs", "prompt": "Read all"}, "agentId: a81f3c (to go on)")
SHELL = step("Bash", {"command": "npm run dev", "run_in_background": True}, "Running in background with ID: bash_2")


def run(command: str, said: str = "ok") -> list[Message]:
    return step("bash", {"command": command}, said)


def test_started_processes_are_listed_with_their_ids() -> None:
    """In each client's form, whatever follows, and however long ago it was."""
    for begun, told in [
        (SERVER, "python server.py --port 8000 > out.log 2>&1 & (pid 41297)"),
        (AGENT, 'Task {"description":"Read docs","prompt":"Read all"} (agentId a81f3c)'),
        (run("nohup ./worker", "pid is 4242"), "nohup ./worker (pid 4242)"),
        (step("spawn_agent", {"message": "go"}, '{"agent_id": "01ab-cd"}'), "agent_id 01ab-cd"),
        (step("run_terminal", {"command": "make watch", "is_background": True}, "Shell ID: 5f"), "make watch"),
    ]:
        (row,) = find_running(begun)
        assert told in row
        assert find_running([*begun, *run("ls"), *[user()] * 2000]) == (row,)
    for begun, told in [
        (BASH_7, "make watch (ID bash_7)"),
        (CODEX, "make watch (session ID 12345)"),
        (COMPOSE, "docker compose up -d"),
        (run("docker run -d web", "0123456789ab" + "c" * 52), "docker run -d web (container 0123456789ab)"),
        (step("Task", {"prompt": "go"}, "Async agent launched successfully.\nagentId: a1b2c3d4"), "(agentId a1b2c3d4)"),
        (step("Task", {"prompt": "go"}, "Task was launched in the background."), 'Task {"prompt":"go"}'),
    ]:
        (row,) = find_running(begun)
        assert told in row


def test_calls_without_a_background_process_are_not_running() -> None:
    """They have answered, have failed, or are only text; a task list is no list of agents."""
    for one in [
        step("Task", {"prompt": "Look"}, "Found. The server is started in the background by main.py"),
        *(step(name, {"task": "a"}, "task_id: 7") for name in ("run_task", "complete_task", "agent_status")),
        run('git commit -m "drop nohup &"'),
        run("cat > a.sh <<EOF\nserver &\nEOF\nls"),
        run("./server &", "bash: ./server: not found\nexit code: 127"),
        step("Bash", {"command": "x", "run_in_background": True}, "<tool_use_error>no</tool_use_error>"),
        run("cat notes.md", "Running in background with ID: bash_7"),
    ]:
        assert find_running(one) == ()
    for one in [
        run("make && make test"),
        run("curl 'https://x.example/?a=1&b=2'"),
        step("TaskCreate", {"subject": "a"}),
        step("TaskOutput", {"task_id": "a81f3c"}),
    ]:
        assert find_running(one) == ()
    assert find_running(run("ls"), SERVER) == find_running(SERVER[:1]) == ()


BASH_7 = step(
    "Bash", {"command": "make watch", "run_in_background": True}, "Command running in background with ID: bash_7"
)
CODEX = step("exec_command", {"cmd": "make watch"}, "Process running with session ID 12345")
COMPOSE = run("docker compose up -d", "Container web Started")


CONTAINER = "0123456789ab" + "c" * 52


def test_what_was_ended_is_not_running() -> None:
    """In the removed part or in the tail, unless that was refused. What is started after it is running."""
    for ending in [
        run("kill 41297"),
        run("pkill -f server.py"),
        run("lsof -ti:8000 | xargs kill -9"),
        step("process_stop", {"pid": 41297}),
    ]:
        assert find_running([*SERVER, *ending]) == ()
        assert find_running(SERVER, ending) == ()
        assert len(find_running([*SERVER, *ending, *SERVER])) == 1
    for begun, ending in [
        (BASH_7, step("KillShell", {"shell_id": "bash_7"}, "Killed")),
        (BASH_7, step("BashOutput", {"bash_id": "bash_7"}, "<status>completed</status>")),
        (CODEX, step("write_stdin", {"session_id": 12345}, "Process exited with code 0")),
        (COMPOSE, run("docker compose down -v")),
        (run("docker run -d web", CONTAINER), run(f"docker stop {CONTAINER}")),
        (SERVER, run("kill %1")),
    ]:
        assert find_running([*begun, *ending]) == ()
        refused = [ending[0], result(ending[0].tool_calls[0].id, "The user doesn't want to proceed")]
        assert len(find_running([*begun, *refused])) == 1


def test_ending_something_else_ends_no_entry() -> None:
    """Neither does a file that mentions an end, nor a look at the job."""
    for other in [
        run("kill 99999; python other.py"),
        run("grep -n close server.py"),
        run("cat log.41297 41297", "Process exited with code 0"),
        step("edit_file", {"path": "server.py", "text": "socket.close()  # stop"}),
        step("KillProcess", {"pid": 99999}),
    ]:
        assert len(find_running([*SERVER, *other])) == 1
        assert len(find_running(SERVER, other)) == 1
    looks = step("write_stdin", {"session_id": 12345}, "Process running with session ID 12345")
    assert find_running([*CODEX, *looks]) == find_running(CODEX)
    looks = step("BashOutput", {"bash_id": "bash_7"}, "<status>running</status>")
    assert find_running([*BASH_7, *looks]) == find_running(BASH_7)
    assert find_running([*BASH_7, *SERVER, *AGENT, *run("kill %1")]) == find_running([*BASH_7, *AGENT])


def test_only_the_newest_are_listed() -> None:
    """Each has a bounded length; the same command started again is one entry."""
    many = (run(f"./work-{number} {'x ' * 400} &", f"[1] {10000 + number}") for number in range(40))
    rows = find_running([message for one in many for message in one])
    assert len(rows) == MAX_RUNNING
    assert [f"pid {10000 + number}" in row for number, row in enumerate(rows, 40 - MAX_RUNNING)] == [True] * MAX_RUNNING
    assert all(len(row) <= 3 * TITLE_CHARS + 10 for row in rows)
    assert len(find_running([*SHELL, *SERVER, *SHELL])) == 2
    assert "npm run dev" in find_running([*SHELL, *SERVER, *SHELL])[-1]


def test_texts_are_blanked() -> None:
    """Except a command line that is given to another shell."""
    for command, blanked in [
        ("make all &", "make all &"),
        ("echo 'a & b' &", "echo _______ &"),
        ("echo 'open &", "echo _______"),
        ("cat <<EOF > f\nx &\nEOF\nls &", "cat <<EOF > f\n       \nls &"),
        ("cat <<'E' &\nx", "cat <<___ &\n "),
        ("bash -c 'x &'", "bash -c \nx &\n"),
    ]:
        assert blank_texts(command) == blanked


@given(command=st.text(st.sampled_from("ab '\"\\\n#<E&c-sh"), max_size=60))
def test_each_index_stays_valid(command: str) -> None:
    assert len(blank_texts(command)) == len(command)
