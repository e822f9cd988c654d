"""`tests/run --changed` selects the tests of what has changed, and all of them if all stand on it."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "changed_tests.py"))
FILES = (
    "tests/conftest.py",
    "tests/docs/test_quotes.py",
    "tests/proxy/http/test_relay.py",
    "tests/proxy/http/test_relay_ends.py",
    "tests/proxy/http/test_relays.py",
    "tests/proxy/store/conftest.py",
    "tests/proxy/store/test_redis.py",
    "tests/fuzzing/targets.py",
    "tests/fuzzing/test_targets.py",
    "tests/support/builders.py",
    "tests/support/test_checker.py",
    "tests/scripts/test_words.py",
    "tests/bench/tokens/test_run.py",
    "tests/clients/test_sdks.py",
    "tests/clients/drivers/node/driver.mjs",
    "tests/data/golden/names/headers.txt",
)


@pytest.fixture
def root(tmp_path):
    for file in FILES:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ([], []),
        (["LICENSE", ".ci/run"], []),
        (["proxy/http/relay.py"], ["tests/proxy/http/test_relay.py", "tests/proxy/http/test_relay_ends.py"]),
        (["proxy/http/_relays.py"], ["tests/proxy/http/test_relays.py"]),
        (["proxy/http/small.py"], ["tests/proxy/http"]),
        (["proxy/http/__init__.py", "proxy/http/relay.py"], ["tests/proxy/http"]),
        (["proxy/gone/deep/module.py"], ["tests/proxy"]),
        (["tests/proxy/http/test_relay.py"], ["tests/proxy/http/test_relay.py"]),
        (["tests/proxy/http/test_deleted.py"], []),
        (["tests/proxy/store/conftest.py"], ["tests/proxy/store"]),
        (["tests/fuzzing/targets.py"], ["tests/fuzzing"]),
        (["tests/clients/drivers/node/driver.mjs"], ["tests/clients"]),
        (["tests/data/golden/names/headers.txt"], ["tests"]),
        (["docs/tutorial.md", "README.md"], ["tests/docs"]),
        (["scripts/check_words.py"], ["tests/scripts"]),
        (["bench/tokens/run.py"], ["tests/bench/tokens/test_run.py"]),
        (["tests/support/test_checker.py"], ["tests/support/test_checker.py"]),
        (["tests/support/builders.py", "proxy/http/relay.py"], ["tests"]),
        (["tests/conftest.py"], ["tests"]),
        (["pyproject.toml"], ["tests"]),
    ],
)
def test_the_tests_of_a_change(root, changed, chosen):
    assert SCRIPT["choose"](changed, root) == chosen
