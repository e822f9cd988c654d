"""The checks of the site find each fault, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from handbook import built, repository
from handbook.navigation import Page, check_navigation


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_page_that_the_navigation_lacks_is_named_and_so_is_one_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, {"index.md": "", "guides/docker.md": ""})
    pages = [Page("Home", "index.md"), Page("Home", "index.md"), Page("Guides", "guides/systemd.md")]
    wrong = [fault.partition(":")[0] for fault in check_navigation(pages, tmp_path)]
    assert wrong == ["guides/docker.md", "guides/systemd.md", "index.md"]
    assert list(check_navigation([pages[0], Page("Guides", "guides/docker.md")], tmp_path)) == []


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
