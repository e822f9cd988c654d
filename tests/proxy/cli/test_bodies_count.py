"""`trimtab count`."""

from pathlib import Path

import orjson
import pytest
import tiktoken
from click.testing import CliRunner, Result
from support.sessions import make_session

from trimtab.proxy.cli.main import main
from trimtab.proxy.compaction.tokenizers.exact import VocabularyError, load_encoding

pytestmark = pytest.mark.usefixtures("restored_log")

HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello world"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def _count(*arguments: str | Path, input_bytes: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["count", *map(str, arguments)], input=input_bytes, catch_exceptions=False)


def test_the_cookbooks_formula_comes_out() -> None:
    """A message of two tokens costs nine: three for its frame, one for its role, three for the reply's frame."""
    result = _count(input_bytes=orjson.dumps(HELLO))

    assert (result.exit_code, result.stderr) == (0, "")
    assert orjson.loads(result.stdout) == {
        "model": "gpt-4o",
        "vocabulary": "o200k_base",
        "tokens": 9,
        "sections": {"system": 3, "summary": 0, "memory": 0, "recent": 0, "current": 6},
        "parts": {
            "system": 0,
            "tools": 0,
            "memory": 0,
            "summary": 0,
            "user": 6,
            "assistant": 0,
            "tool_results": 0,
            "format": 3,
        },
    }


def test_every_section_has_its_share() -> None:
    """The request has every section, and the shares add up."""
    session = make_session(3)
    memory = "<relevant_context>The harbour is closed on Sundays.</relevant_context>"
    messages = [*session["messages"][:-1], {"role": "user", "content": f"{memory} Go on."}]
    schema = {"type": "json_schema", "json_schema": {"name": "out", "schema": SCHEMA}}
    body = {"model": "gpt-4o", "messages": messages, "tools": session["tools"], "response_format": schema}
    counted = orjson.loads(_count(input_bytes=orjson.dumps(body)).stdout)

    for shown in (counted["sections"], counted["parts"]):
        assert [name for name, tokens in shown.items() if not tokens] == ["summary"]
        assert sum(shown.values()) == counted["tokens"]
    assert counted["parts"]["tool_results"] > 0.5 * counted["tokens"]


def test_another_model_may_be_asked_for(tmp_path: Path) -> None:
    """Its vocabulary, costs and ratio count. The model in the file does not matter."""
    file = tmp_path / "body.json"
    file.write_bytes(orjson.dumps({**HELLO, "messages": [{"role": "user", "content": "我喜欢猫。" * 50}]}))
    counted = {
        model: orjson.loads(_count(file, "--model", model).stdout) for model in ("gpt-4o", "gpt-4", "claude-3-5-haiku")
    }

    assert [item["vocabulary"] for item in counted.values()] == ["o200k_base", "cl100k_base", "o200k_base"]
    assert counted["gpt-4"]["tokens"] > counted["gpt-4o"]["tokens"]
    assert counted["claude-3-5-haiku"]["tokens"] == pytest.approx(1.2 * counted["gpt-4o"]["tokens"], abs=3)


def test_lines_answer_to_lines() -> None:
    """One line of JSON for each request, in order. A line that is not a request gives an error, and the status is 1."""
    lines = b"\n".join((orjson.dumps(HELLO), b"nonsense", orjson.dumps({**HELLO, "model": "gpt-4"}), b""))
    result = _count("--jsonl", input_bytes=lines)
    answers = [orjson.loads(line) for line in result.stdout.splitlines()]

    assert [answer.get("model", answer.get("error")) for answer in answers] == ["gpt-4o", "not a chat request", "gpt-4"]
    assert result.stderr.startswith("trimtab: line 2: not a chat request, because ")
    assert result.exit_code == 1


def test_a_table_is_for_people() -> None:
    """It has a row for each section and each part, and one for the sum."""
    result = _count("--table", input_bytes=orjson.dumps(HELLO))

    assert result.exit_code == 0
    rows = [line.split("│")[1:4] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in rows[4]] == ["current", "6", "66.7%"]
    assert [cell.strip() for cell in rows[9]] == ["user", "6", "66.7%"]
    assert [cell.strip() for cell in rows[-1]] == ["all", "9", ""]


def test_the_configuration_says_how_to_count() -> None:
    """The same keys count for the proxy."""
    result = _count("--set", "defaults.count=heuristic", input_bytes=orjson.dumps(HELLO))

    assert orjson.loads(result.stdout)["vocabulary"] == "heuristic"


@pytest.mark.parametrize(
    ("lost", "settings", "model", "named"),
    [
        (("o200k_base", "cl100k_base"), (), "gpt-4o", "heuristic"),
        (("o200k_base", "cl100k_base"), (), "gpt-4", "heuristic"),
        (("o200k_base", "cl100k_base"), (), "qwen3-8b", "heuristic"),
        (("o200k_base", "cl100k_base"), ("--set", "defaults.count=cl100k_base"), "gpt-4o", "heuristic"),
        (("cl100k_base",), (), "gpt-4", "o200k_base"),
        (("cl100k_base",), (), "gpt-4o", "o200k_base"),
        (("o200k_base",), (), "gpt-4o", "heuristic"),
        (("o200k_base",), (), "gpt-4", "cl100k_base"),
    ],
)
def test_what_counted_is_named(
    lost: tuple[str, ...], settings: tuple[str, ...], model: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a vocabulary cannot be loaded, another one counts, and its name is shown."""

    def load(name: str, _: object = None) -> tiktoken.Encoding:
        if name in lost:
            message = "no such file"
            raise VocabularyError(message)
        return load_encoding(name)

    body = orjson.dumps({**HELLO, "messages": [{"role": "user", "content": "我喜欢猫。 internationalisation" * 50}]})
    arguments = ("--model", model, *settings)
    expected = orjson.loads(_count(*arguments, "--set", f"defaults.count={named}", input_bytes=body).stdout)
    monkeypatch.setattr("trimtab.proxy.compaction.pool.load_encoding", load)
    counted = orjson.loads(_count(*arguments, input_bytes=body).stdout)
    table = _count("--table", *arguments, input_bytes=body).stdout

    assert (counted["vocabulary"], counted["tokens"]) == (named, expected["tokens"])
    assert f"counted by {named}" in " ".join(table.split())


@pytest.mark.parametrize("arguments", [("/no/such/file",), ("--set", "defaults.count=magic"), ("--nonsense",)])
def test_wrong_use_ends_with_status_2(arguments: tuple[str, ...]) -> None:
    """There is also a message."""
    result = _count(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
