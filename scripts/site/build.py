"""Builds the documentation site into `build/site`: HTML, the Markdown source of each page next to it, and llms.txt.

Every warning is an error. Errors are: a link or an anchor that does not exist, a page that is missing from the
navigation, a page more than two clicks away from the front page, and a part of a page that another host would serve.

Usage: python scripts/site/build.py [--pages FOLDER] [--out FOLDER]
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from handbook import built, llms, navigation, reach, repository
from handbook.markdown import read

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("mkdocs.yml")
STYLE = Path(__file__).with_name("site.css")
STAGED = "site-pages"
SITE = "site"
SUMMARY = (
    "trimtab is an OpenAI-compatible reverse proxy that keeps long LLM sessions inside the context window: it compacts"
    " conversations in flight, and forwards requests that need no change byte for byte."
)


def stage(pages: Path, out: Path) -> Path:
    """Copy the pages, the changelog and the configuration to the folder that the site generator reads."""
    staged = out / STAGED
    for folder in (staged, out / SITE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pages, staged)
    shutil.copy(ROOT / "CHANGELOG.md", staged / "changelog.md")
    (staged / "assets").mkdir(exist_ok=True)
    shutil.copy(STYLE, staged / "assets")
    shutil.copy(CONFIG, out / CONFIG.name)
    return staged


def generate(out: Path) -> Iterator[str]:
    """Write the HTML. Yields the generator's output if it fails; its warnings are errors."""
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(out / CONFIG.name),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=out)  # noqa: S603 - a fixed command
    if ended.returncode != 0:
        yield f"the generator failed:\n{click.unstyle(ended.stdout + ended.stderr.partition('Traceback')[0])}"


def add_markdown(staged: Path, site: Path, pages: list[navigation.Page]) -> None:
    """Copy the Markdown of each page next to its HTML, and write llms.txt to the root."""
    texts = {page.path: read(staged / page.path) for page in pages}
    for path in texts:
        shutil.copy(staged / path, site / path)
    (site / "llms.txt").write_text(llms.write_index("trimtab", SUMMARY, pages, texts), "utf-8")


def build(pages_folder: Path, out: Path) -> list[str]:
    """Build the site, and return every problem found."""
    staged = stage(pages_folder, out)
    pages = navigation.read_pages(CONFIG)
    if wrong := list(navigation.check_navigation(pages, staged)):
        return wrong
    texts = {page.path: read(staged / page.path) for page in pages}
    wrong = [*reach.find_distant(pages, texts), *llms.find_unfit(pages, texts), *repository.find_broken(ROOT)]
    if failure := list(generate(out)):
        return [*wrong, *failure]
    add_markdown(staged, out / SITE, pages)
    return [*wrong, *built.find_broken(out / SITE)]


def main() -> None:
    """Build the site. The exit status is 1 if there is any problem."""
    parser = argparse.ArgumentParser(description="Build the documentation site; every warning is an error.")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs", help="the folder with the pages")
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="the folder for the site and its staging")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    wrong = build(given.pages, given.out.resolve())
    sys.stderr.writelines(f"site: {line}\n" for line in wrong)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
