"""The page's files.

Law: exactly the files of one folder, of known types, as they were when the program started: an update of the package
does not change a running one. The page may load nothing from elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
"""Content types by the ending of a name. A file with another ending is not served."""
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every answer of the dashboard."""
UNSTORED = {**SAFE, "Cache-Control": "no-store"}
"""Headers of what changes: data and errors."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page: its content, its content type, and a tag that changes with the content."""

    body: bytes
    content_type: str
    tag: str


def load_files(folder: Path) -> Mapping[str, PageFile]:
    """The files of a folder by name; empty if there is no such folder."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: _load(path) for path in paths if path.suffix in TYPES and path.is_file()}


def _load(path: Path) -> PageFile:
    body = path.read_bytes()
    return PageFile(body, TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')


FILES = load_files(FOLDER)
"""The page. It takes some 80 kB."""


def find_file(name: str) -> PageFile | None:
    """The file of this name, the index for an empty one; None if there is none."""
    return FILES.get(name or INDEX)


def answer_file(request: web.BaseRequest, file: PageFile) -> web.Response:
    """A file, or 304 if the browser has it."""
    headers = {**SAFE, "Cache-Control": "no-cache", "ETag": file.tag}
    if file.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, headers={**headers, "Content-Type": file.content_type})
