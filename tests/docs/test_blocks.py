"""The tests of examples find every block of a page and refuse a wrong one. The pages show that right ones pass."""

from pathlib import Path

import pytest
from programs.processes import Ended
from support.examples.blocks import Block, WrongMarkError, find_blocks
from support.examples.checks import check
from support.examples.running import find_missing, replace_addresses, run_block

RUN = "<!-- run -->\n```sh\necho hi\n```\n"


def test_a_block_has_its_place_and_the_output_of_its_run() -> None:
    """Other blocks and words may stand between a run and its output."""
    page = f"# Title\n\n{RUN}\nIt says:\n\n```json\n1\n```\n\n<!-- output -->\n```text\nhi\n```\n"
    run, other, shown = find_blocks(page, "page.md")
    assert (run.place, run.language, run.is_run, run.output) == ("page.md:4", "sh", True, "hi\n")
    assert (other.is_run, shown.place, shown.output) == (False, "page.md:15", None)


@pytest.mark.parametrize(
    "page",
    [
        "```\nno language\n```\n",
        "<!-- run -->\n\nA paragraph.\n",
        "<!-- run -->\n",
        "<!-- run -->\n```json\n1\n```\n",
        "<!-- output -->\n```text\nof nothing\n```\n",
        f"{RUN}<!-- output -->\n```sh\nls\n```\n",
        f"{RUN}<!-- output -->\n```text\na\n```\n<!-- output -->\n```text\nb\n```\n",
        "!!! note\n\n    ```sh\n    ls\n    ```\n",
    ],
)
def test_a_wrong_mark_is_named_with_file_and_line(page: str) -> None:
    with pytest.raises(WrongMarkError, match=r"^page\.md:\d+: "):
        find_blocks(page, "page.md")


@pytest.mark.parametrize(
    ("language", "text", "fault"),
    [
        ("yaml", "# trimtab-team.yaml\nlisten: 127.0.0.1:8790\nnonsense: 1\n", "nonsense"),
        ("yaml", "a: [\n", "not valid YAML"),
        ("json", "{a: 1}", "not valid JSON"),
        ("python", "def f(:\n", "not valid Python"),
        ("sh", "if true; then\n", "not valid for bash"),
        ("sh", "$ trimtab demo\n", "prompt"),
        ("sh", "trimtab server\n", "server"),
        ("sh", "ls && trimtab serve --log-level loud\n", "loud"),
        ("sh", "trimtab serve --set limits.drain=5\n", "limits.drain"),
        ("sh", "trimtab check a.yaml b.yaml > c 2>&1\n", "b.yaml"),
        ("sh", "docker run -p 8790:8790 trimtab serve --upstrem http://x/v1\n", "--upstrem"),
        ("sh", "./.venv/bin/trimtab demo --kept\n", "--kept"),
        ("sh", "until python -m trimtab healthcheck --nonsense; do :; done\n", "--nonsense"),
        ("sh", 'echo "$x" | while read f; do trimtab check; done\n', "missing"),
    ],
)
def test_a_wrong_example_is_refused(language: str, text: str, fault: str, tmp_path: Path) -> None:
    assert fault in str(check(Block("page.md", 3, language, text), tmp_path))


def test_addresses_are_replaced_but_not_numbers_of_data() -> None:
    text = "curl http://localhost:8790/v1; echo 'in use: 8790'; serve --upstream https://api.openai.com/v1"
    replaced = "curl http://localhost:9/v1; echo 'in use: 8790'; serve --upstream http://up/v1"
    assert replace_addresses(text, "http://up/v1", 9) == replaced


def test_output_is_compared_by_its_words() -> None:
    """What is not there is shown."""
    ended = Ended(0, "one  two\nthree\n", "four\n")
    for expected in ("one two", "one   ...\nfour", "two\nthree", "..."):
        assert find_missing(expected, ended) is None
    for expected in ("two one", "one ... five", "thre four", "one.two", "one two thr"):
        assert "three" in str(find_missing(expected, ended))


@pytest.mark.parametrize(("text", "fault"), [("false\necho hi", "status 1"), ("echo ho", "but:\nho")])
async def test_a_run_that_fails_or_prints_something_else_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    run = Block("page.md", 3, "sh", text, is_run=True, output="hi")
    assert fault in str(await run_block(run, "http://127.0.0.1:1/v1", tmp_path))
