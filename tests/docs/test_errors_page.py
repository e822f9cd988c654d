"""docs/reference/errors.md lists every error that trimtab sends, and every exit status."""

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator

import orjson
from support.client import post
from support.reference_pages import find_code, read_page, read_rows, read_section

from trimtab import proxy
from trimtab.__main__ import INTERRUPTED
from trimtab.proxy.cli.options import WRONG_USE
from trimtab.proxy.http.errors import ProxyError

PAGE = "errors.md"


def _find_errors(kind: type[ProxyError] = ProxyError) -> Iterator[type[ProxyError]]:
    """Every error class of the program, in any module."""
    for module in pkgutil.walk_packages(proxy.__path__, "trimtab.proxy."):
        importlib.import_module(module.name)
    for error in kind.__subclasses__():
        yield error
        yield from _find_errors(error)


def test_the_page_has_every_error_with_its_status_and_type() -> None:
    on_page = [tuple(cell.strip("`") for cell in row[:3]) for row in read_rows(read_section(PAGE, "Error codes"))]
    in_code = [(error.code, str(error.status), error.type) for error in _find_errors()]

    assert sorted(on_page) == sorted(in_code)


def test_the_page_says_after_which_errors_the_connection_ends() -> None:
    listed = read_section(PAGE, "Connections that end").split("\n\n")[1]
    ending = {error.code for error in _find_errors() if error.closes}

    assert set(find_code(listed)) == ending


def test_the_page_says_when_an_error_asks_to_try_again() -> None:
    rows = {row[0].strip("`"): row[4] for row in read_rows(read_section(PAGE, "Error codes"))}

    for error in _find_errors():
        assert ("Retry-After" in error.headers) == ("`Retry-After`" in rows[error.code])


def test_the_page_has_every_exit_status() -> None:
    rows = read_rows(read_section(PAGE, "Exit statuses"))
    statuses = {int(row[0]) for row in rows if row[0].isdigit()}

    assert statuses == {0, 1, WRONG_USE, INTERRUPTED, 128 + signal.SIGTERM}


async def test_the_examples_are_answers_of_the_proxy(start_proxy, client) -> None:
    """`...` at the end of a message of the page stands for the rest of it."""
    examples = [orjson.loads(text) for text in re.findall(r"```json\n(.*?)```", read_page(PAGE), re.DOTALL)]
    proxy = await start_proxy("defaults.context_window=2048")
    chat = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    long = chat | {"messages": [{"role": "system", "content": "word " * 9000}, *chat["messages"]]}

    for sent, headers, example in zip((chat, long), ({"x-trimtab-mode": "loud"}, {}), examples, strict=True):
        answer, body = await post(client, f"{proxy.url}/v1/chat/completions", sent, **headers)
        error, shown = orjson.loads(body)["error"], example["error"]
        assert answer.status == 400
        assert error["message"].startswith(shown["message"].removesuffix("..."))
        assert error | {"message": ""} == shown | {"message": ""}
