"""Checks the links of the built HTML: each target and anchor exists, and pages load nothing from another host."""

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"audio", "embed", "iframe", "img", "object", "script", "source", "video"}
_LOADED_RELATIONS = {"dns-prefetch", "icon", "manifest", "modulepreload", "preconnect", "prefetch", "preload"}


class _Reader(HTMLParser):
    """Collects the links of a page, the files that it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        target = values.get("src") or values.get("data") if tag in _LOADED else values.get("href")
        if target:
            self.links.append(target)
            relations = set(values.get("rel", "").split())
            if tag in _LOADED or (tag == "link" and relations & {"stylesheet", *_LOADED_RELATIONS}):
                self.loaded.append(target)


def find_broken(site: Path) -> Iterator[str]:
    """Find links of the site's pages without a target, and parts of pages that another host would serve."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: loads {target} from another host" for target in page.loaded if is_elsewhere(target))
        if path.name != "404.html":  # the server shows it for any missing path, so its links start at the root
            own = [target for target in dict.fromkeys(page.links) if not is_elsewhere(target)]
            yield from (f"{name}: {target} {fault}" for target in own if (fault := _find_fault(path, target, pages)))


def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader


def _find_fault(path: Path, target: str, pages: Mapping[Path, _Reader]) -> str | None:
    parts = urlsplit(target)
    file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    file = file / "index.html" if file.is_dir() else file
    if not file.is_file():
        return "does not exist"
    is_missing = parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors
    return "names an anchor that does not exist" if is_missing else None


def is_elsewhere(target: str) -> bool:
    """Whether a target has its own scheme or host."""
    parts = urlsplit(target)
    return bool(parts.scheme or parts.netloc)
