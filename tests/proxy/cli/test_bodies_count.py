"""`trimtab count`."""

from pathlib import Path

import orjson
import pytest
import tiktoken
from click.testing import CliRunner, Result
from support.command_line import tell
from support.golden import check_golden
from support.sessions import make_session

from trimtab.proxy.cli.main import main
from trimtab.proxy.compaction.tokenizers.exact import VocabularyError, load_encoding

pytestmark = pytest.mark.usefixtures("restored_log")

HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello world"}]}
CHINESE = {**HELLO, "messages": [{"role": "user", "content": "我喜欢猫。" * 50}]}


def test_what_is_counted_is_told() -> None:
    """By section and by part, as the vocabulary, the costs and the ratio of the model say; a line for each line."""
    hello, chinese = orjson.dumps(HELLO), orjson.dumps(CHINESE)
    texts = {"one request": tell("count", input_bytes=hello), "a table": tell("count", "--table", input_bytes=hello)}
    for model in ("gpt-4o", "gpt-4", "claude-3-5-haiku"):
        texts[model] = tell("count", "--model", model, input_bytes=chinese)
    lines = b"\n".join((hello, b"nonsense", chinese, b""))
    texts["lines"] = tell("count", "--jsonl", "--set", "defaults.count=heuristic", input_bytes=lines)
    texts["wrong use"] = tell("count", "--set", "defaults.count=magic")
    check_golden("commands/count", texts)


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def _count(*arguments: str | Path, input_bytes: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["count", *map(str, arguments)], input=input_bytes, catch_exceptions=False)


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


@pytest.mark.parametrize(
    ("lost", "settings", "model", "named"),
    [
        (("o200k_base", "cl100k_base"), ("--set", "defaults.count=cl100k_base"), "gpt-4o", "heuristic"),
        (("cl100k_base",), (), "gpt-4", "o200k_base"),
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
