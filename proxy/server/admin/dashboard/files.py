"""The page's files.

Law: exactly the files of one folder, of known types. The page may load nothing from elsewhere.
"""

from functools import lru_cache
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


def find_file(name: str) -> Path | None:
    """The file of this name, the index for an empty one; None if there is none."""
    name = name or INDEX
    if Path(name).suffix not in TYPES or not FOLDER.is_dir():
        return None
    return next((path for path in FOLDER.iterdir() if path.name == name and path.is_file()), None)


def answer_file(request: web.BaseRequest, path: Path) -> web.Response:
    """A file, or 304 if the browser has it."""
    changed = path.stat()
    body, tag = _read(path, changed.st_mtime_ns, changed.st_size)
    headers = {**SAFE, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers={**headers, "Content-Type": TYPES[path.suffix]})


@lru_cache(maxsize=32)
def _read(path: Path, _changed_at: int, _size: int) -> tuple[bytes, str]:
    body = path.read_bytes()
    return body, f'"{sha256(body).hexdigest()[:32]}"'
