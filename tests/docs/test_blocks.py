"""The tests of examples find every block of a page and refuse a wrong one: no wrong example may pass."""

from pathlib import Path

import pytest
from programs.processes import Ended
from support.examples.blocks import Block, WrongMarkError, find_blocks
from support.examples.checks import check
from support.examples.running import find_missing, replace_addresses, run_block
from support.examples.shell import find_commands

RUN = "<!-- run -->\n```sh\necho hi\n```\n"


def block(language: str, text: str) -> Block:
    return Block("page.md", 3, language, text)


def test_a_block_has_its_place_and_its_marks() -> None:
    run, other = find_blocks(f"# Title\n\n{RUN}\n<!-- output -->\n```text\nhi\n```\n", "page.md")
    assert (run.place, run.language, run.is_run, run.output) == ("page.md:4", "sh", True, "hi\n")
    assert (other.place, other.is_run) == ("page.md:9", False)


def test_other_blocks_and_words_may_stand_between_a_run_and_its_output() -> None:
    page = f"{RUN}\nIt says:\n\n```json\n1\n```\n\n<!-- output -->\n```text\nhi\n```\n"
    assert [one.output for one in find_blocks(page, "page.md")] == ["hi\n", None, None]


@pytest.mark.parametrize(
    "page",
    [
        "```\nls\n```\n",
        "<!-- run -->\n\nA paragraph.\n",
        "<!-- run -->\n",
        "<!-- run -->\n```json\n1\n```\n",
        "<!-- output -->\n```text\nhi\n```\n",
        f"{RUN}<!-- output -->\n```sh\nls\n```\n",
        f"{RUN}<!-- output -->\n```text\na\n```\n<!-- output -->\n```text\nb\n```\n",
        "!!! note\n\n    ```sh\n    ls\n    ```\n",
    ],
    ids=[
        "no language",
        "a mark before a paragraph",
        "a mark at the end",
        "a run of data",
        "an output of nothing",
        "an output that is a command",
        "two outputs of one run",
        "a block in an admonition",
    ],
)
def test_a_wrong_mark_is_named_with_file_and_line(page: str) -> None:
    with pytest.raises(WrongMarkError, match=r"^page\.md:\d+: "):
        find_blocks(page, "page.md")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("yaml", "# trimtab.yaml\nlisten: 127.0.0.1:8790\n"),
        ("yaml", '# trimtab-team.yaml: a comment\nclient_keys: ["${TEAM_KEY}"]\nstore: ${REDIS_URL}\n'),
        (
            "yaml",
            "# trimtab.yaml\nupstream:\n  ca_file: /etc/ssl/company.pem\n  client_cert_file: /etc/trimtab/own.pem\n",
        ),
        ("yaml", "# trimtab.yaml\nstore: redis://:${REDIS_PASSWORD}@redis.example.com:6379/0\n"),
        ("yaml", "a: 1\n---\nb: 2\n"),
        ("json", '{"a": 1}'),
        ("python", "import os\n"),
        ("ini", "[Service]\n"),
        (
            "sh",
            "trimtab serve --upstream http://a/v1 --set limits.drain_seconds=5 2>log.txt &\ncurl x | jq .\n",
        ),
        ("sh", "cat > f <<'END'\ntrimtab nonsense\nEND\n.venv/bin/trimtab check f # it's valid\nls\n"),
        ("sh", "TRIMTAB_LISTEN=:1 exec trimtab serve \\\n  --log-level debug\n"),
        ("sh", "pip install trimtab && systemctl restart trimtab; docker build -t trimtab .\n"),
        ("sh", 'trimtab evaluate --questions "$COUNT" session.json\n'),
    ],
)
def test_a_right_example_passes(language: str, text: str, tmp_path: Path) -> None:
    assert check(block(language, text), tmp_path) is None


@pytest.mark.parametrize(
    ("language", "text", "fault"),
    [
        ("yaml", "# trimtab.yaml\nlisten: 127.0.0.1:8790\nnonsense: 1\n", "nonsense"),
        ("yaml", "# trimtab-team.yaml\nworkers: many\n", "workers"),
        ("yaml", "a: [\n", "not valid YAML"),
        ("json", "{a: 1}", "not valid JSON"),
        ("python", "def f(:\n", "not valid Python"),
        ("sh", "if true; then\n", "not valid for bash"),
        ("sh", "$ trimtab demo\n", "prompt"),
        ("sh", "trimtab server\n", "server"),
        ("sh", "ls && trimtab serve --port 1\n", "--port"),
        ("sh", "trimtab serve --log-level loud\n", "loud"),
        ("sh", "trimtab serve --set limits.drain=5\n", "limits.drain"),
        ("sh", "trimtab check\n", "missing"),
        ("sh", "trimtab check a.yaml b.yaml\n", "b.yaml"),
        ("sh", "docker run -p 8790:8790 trimtab serve --upstrem http://x/v1\n", "--upstrem"),
        ("sh", "./.venv/bin/trimtab demo --kept\n", "--kept"),
        ("sh", "python -m trimtab serve --nonsense\n", "--nonsense"),
        ("sh", "until trimtab healthcheck --nonsense; do :; done\n", "--nonsense"),
        ("sh", 'echo "$x" | while read f; do trimtab check; done\n', "missing"),
    ],
)
def test_a_wrong_example_is_refused(language: str, text: str, fault: str, tmp_path: Path) -> None:
    assert fault in str(check(block(language, text), tmp_path))


def test_redirections_and_descriptors_are_no_arguments() -> None:
    assert list(find_commands("trimtab compact a.json > b.json 2>&1 < c")) == [["compact", "a.json"]]


def test_addresses_are_replaced_but_not_numbers_of_data() -> None:
    text = "curl http://localhost:8790/v1; echo 'in use: 8790'; serve --upstream https://api.openai.com/v1"
    replaced = "curl http://localhost:9/v1; echo 'in use: 8790'; serve --upstream http://up/v1"
    assert replace_addresses(text, "http://up/v1", 9) == replaced


@pytest.mark.parametrize("expected", ["one two", "one   ...\nfour", "two\nthree", "..."])
def test_output_is_compared_by_its_words(expected: str) -> None:
    assert find_missing(expected, Ended(0, "one  two\nthree\n", "four\n")) is None


@pytest.mark.parametrize("expected", ["two one", "one ... five", "thre four", "one.two", "one two thr"])
def test_output_that_is_not_there_is_shown(expected: str) -> None:
    assert "three" in str(find_missing(expected, Ended(0, "one  two\nthree\n", "four\n")))


SERVING = 'trimtab serve --log-level error & until trimtab healthcheck >/dev/null 2>&1; do :; done; curl -s -d "{}" '


async def test_a_server_in_the_background_ends_with_its_block(upstream, tmp_path: Path) -> None:
    run = Block("page.md", 3, "sh", f"{SERVING} http://127.0.0.1:8790/v1/x", is_run=True, output="All good. ...")
    assert await run_block(run, upstream.url, tmp_path) is None
    assert [one.path for one in upstream.requests] == ["/v1/x"]


@pytest.mark.parametrize(("text", "fault"), [("false\necho hi", "status 1"), ("echo ho", "but:\nho")])
async def test_a_run_that_fails_or_prints_something_else_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    run = Block("page.md", 3, "sh", text, is_run=True, output="hi")
    assert fault in str(await run_block(run, "http://127.0.0.1:1/v1", tmp_path))
