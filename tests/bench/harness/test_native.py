"""The generator and the upstream, in C and in Python, in all combinations."""

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from bench.harness.native import describe_native, find_native

BODY = {"model": "m", "messages": [{"role": "user", "content": "NONCE-0000000000"}]}
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
FORMS = [pytest.param(("cc",), marks=needs_compiler, id="c"), pytest.param((), id="python")]


@pytest.fixture(params=FORMS)
def upstream_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of an upstream in each form. Its streams have five events."""
    command = find_native("upstream", compilers=request.param)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        ask(port, "/control?events=5&pause_us=1000")
        yield port
        process.kill()


@pytest.fixture(params=FORMS)
def generator(request: pytest.FixtureRequest) -> list[str]:
    """A generator in each form."""
    return find_native("generator", compilers=request.param)


def ask(port: int, path: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data=body, timeout=30) as answer:
        return bytes(answer.read())


def run(generator: list[str], port: int, file: Path, *options: str) -> dict[str, object]:
    printed = subprocess.run([*generator, str(port), "/v1/x", str(file), *options], stdout=subprocess.PIPE, check=True)
    told: dict[str, object] = orjson.loads(printed.stdout)
    return told


def write(tmp_path: Path, **others: object) -> Path:
    file = tmp_path / "body.json"
    file.write_bytes(orjson.dumps(BODY | others))
    return file


def test_every_answer_is_counted_once_on_both_sides(upstream_port, generator, tmp_path) -> None:
    """The upstream counts as many requests as the generator counts responses."""
    told = run(generator, upstream_port, write(tmp_path), "-n", "20", "-w", "0")
    counts = orjson.loads(ask(upstream_port, "/counts"))
    assert (told["done"], told["answers"], told["failed"], counts["requests"]) == (20, 20, 0, 20)
    assert told["first"]["p50"] <= told["last"]["p50"]  # type: ignore[index]


def test_a_stream_is_read_to_its_end(upstream_port, generator, tmp_path) -> None:
    """The upstream counts the events between the first one and the last one."""
    told = run(generator, upstream_port, write(tmp_path, stream=True), "-n", "4", "-c", "2", "-s", "-w", "0")
    counts = orjson.loads(ask(upstream_port, "/counts"))
    assert told["failed"] == 0
    assert counts["events"] == 5 * int(told["done"])  # type: ignore[call-overload]


def test_an_answer_that_is_no_stream_has_failed_as_one(upstream_port, generator, tmp_path) -> None:
    """A gateway that drops the end of streams must not look fast."""
    told = run(generator, upstream_port, write(tmp_path), "-n", "3", "-s", "-w", "0")
    assert (told["answers"], told["failed"]) == (0, 3)


def test_no_two_bodies_are_equal_if_so_asked(upstream_port, generator, tmp_path) -> None:
    """Bodies keep their length, so the number of bytes shows that all were sent completely."""
    file = write(tmp_path)
    told = run(generator, upstream_port, file, "-n", "5", "-u", "-w", "0")
    counts = orjson.loads(ask(upstream_port, "/counts"))
    assert told["failed"] == 0
    assert counts["body_bytes"] == 5 * file.stat().st_size


def test_usage_comes_only_if_it_is_asked_for(upstream_port) -> None:
    """It is one more event, without choices, as OpenAI sends it."""
    plain = ask(upstream_port, "/v1/x", orjson.dumps(BODY | {"stream": True}))
    asked = ask(
        upstream_port, "/v1/x", orjson.dumps(BODY | {"stream": True, "stream_options": {"include_usage": True}})
    )
    assert plain.count(b"data: ") == 7
    assert asked.count(b"data: ") == 8
    assert b"usage" in asked
    assert b"usage" not in plain


def test_without_a_compiler_python_does() -> None:
    """The report says so."""
    assert describe_native(find_native("generator", compilers=())) == "in Python"
