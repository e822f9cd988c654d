"""The checks of the site find each fault, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from handbook import built, llms, repository
from handbook.markdown import find_anchors, read_summary, read_title
from handbook.navigation import Page, check_navigation, read_pages
from handbook.reach import find_distant

CONFIG = Path(__file__).parents[2] / "scripts/site/mkdocs.yml"


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_navigation_begins_with_the_front_page_and_names_no_page_twice() -> None:
    pages = [page.path for page in read_pages(CONFIG)]
    assert pages[0] == "index.md"
    assert len(set(pages)) == len(pages)
    assert "architecture/index.md" in pages


def test_a_page_that_the_navigation_lacks_is_named_and_so_is_one_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, {"index.md": "", "guides/docker.md": ""})
    pages = [Page("Home", "index.md"), Page("Home", "index.md"), Page("Guides", "guides/systemd.md")]
    wrong = [fault.partition(":")[0] for fault in check_navigation(pages, tmp_path)]
    assert wrong == ["guides/docker.md", "guides/systemd.md", "index.md"]
    assert list(check_navigation([pages[0], Page("Guides", "guides/docker.md")], tmp_path)) == []


def test_a_page_three_clicks_away_is_named() -> None:
    texts = {
        "index.md": "[a](guides/a.md#part)",
        "guides/a.md": "[b](../b.md), [far](https://example.com/c.md)",
        "b.md": "[c](c.md)",
        "c.md": "",
    }
    pages = [Page("", path) for path in texts]
    assert [fault.partition(":")[0] for fault in find_distant(pages, texts)] == ["c.md"]


PAGE = '<link rel="stylesheet" href="a.css"><h1 id="top">x</h1>'


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="guides/a.html#top"></a><a href="#top"></a><a href="guides/">', None),
        ('<a href="https://example.com/nowhere"></a>', None),
        ('<link rel="canonical" href="https://example.com/">', None),
        ('<a href="guides/b.html"></a>', "guides/b.html does not exist"),
        ('<a href="guides/a.html#nope"></a>', "#nope names an anchor"),
        ('<img src="missing.svg">', "missing.svg does not exist"),
        ('<script src="https://cdn.example.com/x.js"></script>', "another host"),
        ('<link rel="stylesheet" href="//fonts.example.com/x.css">', "another host"),
        ('<link rel="preconnect" href="https://fonts.example.com">', "another host"),
    ],
)
def test_links_of_the_html_lead_somewhere_and_nothing_is_loaded_from_elsewhere(
    html: str, fault: str | None, tmp_path: Path
) -> None:
    site = write(
        tmp_path, {"a.css": "", "guides/a.html": '<p id="top">', "guides/index.html": "", "index.html": PAGE + html}
    )
    found = list(built.find_broken(site))
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0])


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("docs/a.md#two-words", None),
        ("docs", None),
        ("#here", None),
        ("https://example.com/x.md#y", None),
        ("docs/b.md", "README.md:3: docs/b.md does not exist"),
        ("docs/a.md#three", "names an anchor"),
        ("#there", "names an anchor"),
    ],
)
def test_links_of_the_repository_lead_somewhere(link: str, fault: str | None, tmp_path: Path) -> None:
    write(tmp_path, {"README.md": f"# Here\n\n[x]({link})\n\n```sh\n# [y](no)\n```\n", "docs/a.md": "## Two `words`\n"})
    found = list(repository.find_broken(tmp_path, ("README.md",)))
    assert (found == []) if fault is None else (len(found) == 1 and fault in found[0])


def test_anchors_are_those_of_github() -> None:
    text = "# What's *new*?\n\n## `a_b` / c\n\n## Twice\n\n## Twice\n\n<a id='own'></a>\n"
    assert find_anchors(text) == {"whats-new", "a_b--c", "twice", "twice-1", "own"}


def test_the_index_for_models_has_each_page_with_its_first_sentence() -> None:
    texts = {"index.md": "<!-- a comment -->\n\n# Home\n\nFirst of\nall, `v1.0 is`. Second.\n", "a.md": "# A\n\nOne.\n"}
    pages = [Page("Start", "index.md"), Page("More", "a.md")]
    assert llms.write_index("name", "What it is.", pages, texts) == (
        "# name\n\n> What it is.\n\n## Start\n\n- [Home](index.md): First of all, v1.0 is.\n"
        "\n## More\n\n- [A](a.md): One.\n"
    )


def test_a_page_without_a_title_or_a_sentence_is_named() -> None:
    texts = {"a.md": "# A\n\n- list\n", "b.md": "Words.\n", "c.md": "# C\n\nWords.\n"}
    assert read_title(texts["b.md"]) == ""
    assert read_summary(texts["c.md"]) == "Words."
    found = llms.find_unfit([Page("", path) for path in texts], texts)
    assert [fault.partition(":")[0] for fault in found] == ["b.md"]
