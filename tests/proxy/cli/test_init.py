"""`trimtab init`: what it asks, what it writes, and when it writes nothing."""

import asyncio
import os
import re
from pathlib import Path

import orjson
import pytest
from click.testing import Result
from support.command_line import run_trimtab
from support.golden import check_golden
from upstreams.recording import FakeUpstream

from trimtab.proxy.cli.init import list_unknown, write_document
from trimtab.proxy.config.load import load_config, load_file

KEY = "sk-PLANTED-KEY"
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no variable of a provider."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


async def init(*arguments: str, answers: list[str] | None = None, **environment: str) -> Result:
    given = None if answers is None else "".join(f"{answer}\n" for answer in answers).encode()
    return await asyncio.to_thread(run_trimtab, "init", *arguments, input_bytes=given, **environment)


async def test_without_a_terminal_options_and_defaults_answer(upstream: FakeUpstream, here: Path) -> None:
    """It writes a valid file, or prints it; tells what it found and what to do next; the key is in neither."""
    entries = [{"id": "odd\x1bname"}, {"id": "qwen3", "max_model_len": 32768}]
    upstream.models = orjson.dumps({"data": entries})
    options = ("--upstream", upstream.url, "--key-from-env", "MY_KEY", "--own-key", "--mode", "observe")
    result = await init(*options, MY_KEY=KEY)

    assert (result.exit_code, result.stdout) == (0, "")
    written = here / "trimtab.yaml"
    assert run_trimtab("check", written, MY_KEY=KEY).exit_code == 0
    assert "api_key: ${MY_KEY}" in written.read_text()
    assert KEY not in written.read_text() + result.stderr
    printed = await init(*options, "-o", "-", MY_KEY=KEY)
    assert printed.stdout == written.read_text()
    assert "  qwen3: window 32,768\n  odd\\x1bname: window not known\n" in result.stderr
    assert "trimtab serve --config trimtab.yaml" in result.stderr
    assert "export OPENAI_BASE_URL=http://127.0.0.1:8790/v1" in result.stderr
    assert {value for one in upstream.questions for value in one.header("Authorization")} == {f"Bearer {KEY}"}


async def test_on_a_terminal_it_asks(upstream: FakeUpstream, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer is the default that is shown."""
    monkeypatch.setattr("trimtab.proxy.cli.init._has_terminal", lambda: True)
    upstream.models = orjson.dumps({"data": [{"id": "m"}]})
    result = await init(answers=[upstream.url, "MY_KEY", "y", "frugal", ""], MY_KEY=KEY, OPENAI_BASE_URL="http://else")

    assert result.exit_code == 0, result.stderr
    assert "URL of the model server [http://else]" in result.stderr
    monkeypatch.setenv("MY_KEY", KEY)
    config = load_file(here / "trimtab.yaml")
    assert (config.upstream.base_url, config.upstream.api_key) == (upstream.url, KEY)
    assert (config.defaults.economy, config.mode) == ("frugal", "enforce")
    assert KEY not in result.stderr


async def test_a_file_that_exists_stays_unless_it_is_told_otherwise(upstream: FakeUpstream, here: Path) -> None:
    """Nothing is asked of the upstream before."""
    file = here / "mine.yaml"
    file.write_text("mode: off\n")
    refused = await init("--upstream", upstream.url, "-o", "mine.yaml")
    assert (refused.exit_code, file.read_text()) == (1, "mode: off\n")
    assert "--force" in refused.stderr
    assert not [*upstream.questions, *upstream.requests]

    assert (await init("--upstream", upstream.url, "-o", "mine.yaml", "--force")).exit_code == 0
    assert load_file(file).upstream.base_url == upstream.url


async def test_a_server_that_cannot_be_reached_is_told_and_nothing_is_written_unasked(here: Path) -> None:
    """With --yes the file is written all the same."""
    refused = await init("--upstream", NOWHERE)
    assert refused.exit_code == 1
    assert "could not be reached" in refused.stderr
    assert os.listdir(here) == []  # noqa: PTH208 - pathlib blocks just as long

    written = await init("--upstream", NOWHERE, "--yes")
    assert written.exit_code == 0
    assert load_file(here / "trimtab.yaml").upstream.base_url == NOWHERE


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--upstream", "nowhere"], 2, "upstream.base_url: "),
        (["--upstream", NOWHERE, "--own-key", "--yes"], 1, "--own-key needs the name of a variable"),
        (["--upstream", NOWHERE, "--yes", "-o", "absent/file.yaml"], 1, "absent/file.yaml: No such file or directory"),
    ],
)
async def test_wrong_options_say_what_to_do(options: list[str], status: int, message: str) -> None:
    result = await init(*options)
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


ENVIRONMENT = {"OPENAI_API_KEY": "k", "ALICE_KEY": "a", "ADMIN_TOKEN": "t", "MY_KEY": "PLANTED"}
CHOICES = [
    {"base_url": "http://127.0.0.1:8000/v1"},
    {"base_url": "https://api.openai.com/v1", "own_key": "MY_KEY", "economy": "frugal", "mode": "observe"},
]


def test_the_file_says_what_was_chosen() -> None:
    """It is valid, all else keeps its default, and the key stays in the environment."""
    texts = {str(choices): write_document(**choices, unknown=["some/model:7b"]) for choices in CHOICES}
    check_golden("commands/init", texts)
    one, other = (load_config(text, environment=ENVIRONMENT, is_online=False) for text in texts.values())
    assert (one.model_fields_set, other.upstream.api_key) == ({"upstream"}, "PLANTED")
    assert "PLANTED" not in str(texts)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_every_key_in_a_comment_is_valid_once_its_mark_is_removed(choices: dict[str, str]) -> None:
    """So a reader only removes `# `, and keeps the indentation."""
    text = write_document(**choices, unknown=["some/model:7b"])
    opened, count = re.subn(r"(?m)^(\s*)# (?=\s*(?:- )?[a-z_]+:(?: |$))", r"\1", text)
    assert count > 8
    config = load_config(opened, environment=ENVIRONMENT)
    expected = {"upstream", "models", "mode", "defaults", "listen", "client_keys", "admin_token", "dashboard"}
    assert config.model_fields_set >= expected
    assert config.match_for("some/model:7b") is not None
    assert config.defaults.summary.model == "gpt-4o-mini"


def test_a_models_name_from_the_server_can_do_nothing_in_the_file() -> None:
    """It stays one text in one comment."""
    hostile = 'x"\nmode: off\n${HOME}'
    text = write_document(**CHOICES[0], unknown=[hostile])
    assert load_config(text, environment={}) == load_config(write_document(**CHOICES[0]), environment={})
    assert "\nmode: off" not in text


def test_models_of_a_provider_in_the_catalogue_need_no_window() -> None:
    windows = {"known": 4096, "new": None}
    assert list_unknown("http://127.0.0.1:1/v1", windows) == ["new"]
    assert list_unknown("https://api.openai.com/v1", windows) == []
