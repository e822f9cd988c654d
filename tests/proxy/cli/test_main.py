"""The command line."""

import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest
import tiktoken
from click.testing import CliRunner, Result

from proxy.cli.main import main
from proxy.config.schema import Config

pytestmark = pytest.mark.usefixtures("restored_log", "loaded_vocabulary")

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
SMALL = ("--set", "defaults.count=heuristic", "--set", "defaults.context_window=4000")
ODD_BODY = b'\n{ "messages" : [ {"role":"user", "content":"\\u00e9"} ] , "seed":%d }\r\n\n' % 10**30
NO_ENVIRONMENT = dict.fromkeys(
    (
        "TRIMTAB_CONFIG",
        "TRIMTAB_UPSTREAM",
        "TRIMTAB_LISTEN",
        "TRIMTAB_AUTOCOMPACT_PCT",
        "TRIMTAB_LOG_LEVEL",
        "TRIMTAB_LOG_FORMAT",
    )
)  # click's runner unsets what is None


@pytest.fixture
def loaded_vocabulary(encoding: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's vocabulary for every run in this process."""
    monkeypatch.setattr("proxy.compaction.pool.load_encoding", lambda _: encoding)


def _run(*arguments: str | Path, input_bytes: bytes | None = None, **environment: str) -> Result:
    """Run `trimtab` in this process, without the environment's own settings."""
    return CliRunner().invoke(main, list(map(str, arguments)), input=input_bytes, env={**NO_ENVIRONMENT, **environment})


def _long_body() -> bytes:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Fix the bug."}]
    for number in range(12):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number} " + "x" * 2000})
    return orjson.dumps({"model": "m", "messages": messages})


def test_python_m_proxy_is_the_program() -> None:
    """The module starts the same command under its own name."""
    done = subprocess.run([sys.executable, "-m", "proxy", "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"trimtab, version {version('trimtab')}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("serve", "-h"), ("compact", "--help"), ("check", "-h")])
def test_help_is_there(arguments: tuple[str, ...]) -> None:
    """For the program and for each command."""
    result = _run(*arguments)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: " in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("serve", "--nonsense"),
        ("serve", "extra"),
        ("serve", "--set"),
        ("check",),
        ("check", "a", "b"),
        ("schema", "x"),
        ("compact", "no-such-file"),
        ("compact", "--jsonl", "a", "b"),
        ("check", "no-such-file"),
        ("check", "."),
        ("compact", "--config", "no-such-file", "-"),
        ("compact", "-", "--set", "nonsense"),
        ("compact", "-", "--set", "mode=maybe"),
        ("serve", "--listen", "8790"),
        ("serve", "--upstream", "example.org"),
        ("serve", "--log-level", "loud"),
        ("serve", "--log-format", "xml"),
    ],
)
def test_wrong_use_ends_with_status_2_and_a_sentence(arguments: tuple[str, ...]) -> None:
    """On standard error, never with a traceback."""
    result = _run(*arguments, input_bytes=ODD_BODY)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


def test_check_says_what_is_valid() -> None:
    """One line, status 0."""
    result = _run("check", EXAMPLE, "--set", "upstream.base_url=http://h/v1")

    assert (result.exit_code, result.stdout) == (0, f"{EXAMPLE}: valid; 0 model entries, upstream http://h/v1\n")


def test_check_names_every_mistake(tmp_path: Path) -> None:
    """Each on a line of its own."""
    file = tmp_path / "wrong.yaml"
    file.write_text("listn: h:1\nmode: maybe\n")

    result = _run("check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "trimtab: listn (line 1): unknown key; did you mean listen?",
        "trimtab: mode (line 2): 'maybe' must be enforce, observe or off",
    ]


def test_check_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are said to be none."""
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"a: \xff")

    assert _run("check", file).stderr == f"trimtab: {file}: cannot be read: it is not UTF-8\n"


def test_the_schema_is_the_models_own() -> None:
    """As JSON on standard output."""
    result = _run("schema")

    assert result.exit_code == 0
    assert orjson.loads(result.stdout_bytes) == Config.model_json_schema()


def test_compact_leaves_a_body_alone_that_needs_nothing(tmp_path: Path) -> None:
    """Byte for byte, line ends and all, from a file or from standard input."""
    file = tmp_path / "body.json"
    file.write_bytes(ODD_BODY)

    for result in (_run("compact", file, *SMALL), _run("compact", "-", *SMALL, input_bytes=ODD_BODY)):
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, ODD_BODY, "")
    assert _run("compact", *SMALL, input_bytes=ODD_BODY).stdout_bytes == ODD_BODY


def test_compact_compacts_what_is_too_long() -> None:
    """The digest stands where a summary would; --explain says on standard error what was done."""
    body = _long_body()
    result = _run("compact", "--explain", *SMALL, input_bytes=body)
    quiet = _run("compact", *SMALL, input_bytes=body)

    messages = orjson.loads(result.stdout_bytes)["messages"]
    assert result.exit_code == 0
    assert len(result.stdout_bytes) < len(body)
    assert messages[0]["content"].startswith("Fix the bug.")
    assert messages[-1]["content"].startswith("result 11")
    explained = result.stderr.splitlines()
    assert " sent, limit 3000" in explained[0]
    assert any(line.startswith(("prune: ", "digest: ")) for line in explained[1:])
    assert (quiet.stdout_bytes, quiet.stderr) == (result.stdout_bytes, "")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ((), 16_385 - 16_385 // 4),
        (("--set", "upstream.base_url=http://127.0.0.1:8000/v1"), 128_000 - 8192),
        (("--set", "defaults.context_window=8000"), 6000),
    ],
)
def test_compact_takes_the_window_from_the_catalogue(settings: tuple[str, ...], limit: int) -> None:
    """Where the configuration leaves it open and the upstream is one that the catalogue knows."""
    body = b'{"model":"gpt-3.5-turbo","messages":[{"role":"user","content":"hi"}]}'
    result = _run("compact", "--explain", *settings, "-", input_bytes=body)
    assert f", limit {limit}" in result.stderr


def test_compact_takes_one_request_a_line() -> None:
    """A line for each; one that is no request stays as it is, is named by its number and ends with status 1."""
    small = b'{"messages":[ {"role":"user"} ]}'
    result = _run(
        "compact", "--jsonl", "--explain", *SMALL, input_bytes=small + b"\nnonsense\n" + _long_body() + b"\n" + small
    )

    lines = result.stdout_bytes.splitlines()
    assert result.exit_code == 1
    assert [lines[0], lines[1], lines[3]] == [small, b"nonsense", small]
    assert orjson.loads(lines[2])["messages"][0]["content"].startswith("Fix the bug.")
    assert "trimtab: line 2: no chat request" in result.stderr.splitlines()
    assert {line.partition(":")[0] for line in result.stderr.splitlines()} == {"line 1", "line 3", "line 4", "trimtab"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{}",
        b'{"messages":{}}',
        b'{"messages":[5]}',
        b"\xff",
    ],
    ids=repr,
)
def test_compact_of_no_chat_request_ends_with_status_1(body: bytes) -> None:
    """And says so; nothing goes to standard output."""
    result = _run("compact", *SMALL, input_bytes=body)

    assert (result.exit_code, result.stdout_bytes, result.stderr) == (1, b"", "trimtab: no chat request\n")


def test_compact_of_what_cannot_fit_ends_with_status_1() -> None:
    """The sentence names both sizes."""
    body = orjson.dumps({"messages": [{"role": "user", "content": "x" * 40_000}]})
    result = _run("compact", *SMALL, "--set", "defaults.on_exceeded=error", input_bytes=body)

    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    assert result.stderr.startswith("trimtab: 100")
    assert result.stderr.endswith(" prompt tokens after compaction, limit 3000\n")


def test_the_configuration_file_comes_from_option_or_environment(tmp_path: Path) -> None:
    """TRIMTAB_CONFIG stands for --config; --set wins over either."""
    file = tmp_path / "small.yaml"
    file.write_text("models: [{match: m, context_window: 4000, count: heuristic}]")
    body = _long_body()

    expected = _run("compact", *SMALL, input_bytes=body).stdout_bytes
    assert expected != body
    assert _run("compact", "--config", file, input_bytes=body).stdout_bytes == expected
    assert _run("compact", input_bytes=body, TRIMTAB_CONFIG=str(file)).stdout_bytes == expected
    wide = _run("compact", "--config", file, "--set", "models=[]", input_bytes=body)
    assert wide.stdout_bytes == body


@pytest.mark.parametrize("name", ["TRIMTAB_LOG_LEVEL", "TRIMTAB_LOG_FORMAT"])
def test_the_environment_of_the_log_is_checked_like_its_options(name: str) -> None:
    """The sentence names the option that the variable stands for, and what it may be."""
    result = _run("serve", "--listen", "nowhere", **{name: "nonsense"})

    assert result.exit_code == 2
    assert f"--{name.removeprefix('TRIMTAB_').lower().replace('_', '-')}" in result.stderr
    assert "'nonsense' is not one of" in result.stderr


def test_serve_says_where_it_cannot_listen() -> None:
    """A port that is taken ends with status 1 and a sentence."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = _run("serve", "--listen", address)

    assert result.exit_code == 1
    assert f"trimtab: cannot listen on {address}: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("variable", ["ALL_PROXY", "https_proxy"])
def test_check_is_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """A proxy of the environment that cannot be used is a warning to `check`, and refused by `doctor` and `serve`."""
    monkeypatch.setenv(variable, "socks5://u:PLANTED@127.0.0.1:1")
    file = tmp_path / "right.yaml"
    file.write_text("upstream: {base_url: https://upstream.test/v1}")
    result = _run("check", file)

    assert result.exit_code == 0
    assert result.stdout == f"{file}: valid; 0 model entries, upstream https://upstream.test/v1\n"
    assert result.stderr.startswith(f"trimtab: warning: {variable}: SOCKS proxies are not supported")
    assert "PLANTED" not in result.stderr
    assert _run("doctor", "--config", file).exit_code == 2


def test_check_refuses_a_proxy_of_the_file(tmp_path: Path) -> None:
    """What the file itself says is no matter of the environment."""
    file = tmp_path / "wrong.yaml"
    file.write_text("upstream: {proxy: 'socks5://127.0.0.1:1'}")
    assert _run("check", file).exit_code == 2
