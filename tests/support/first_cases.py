"""`--first-cases`: of each test function only the first of its cases that the other options select.

It is for what would break any case: a file that is missing, a library of another version. Each module is collected with
all of its cases, each function runs once.
"""

import pytest
from support.slow_tests import strip_parameters


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first-cases", action="store_true", help="run only the first case of each test function")


@pytest.hookimpl(trylast=True)  # behind the markers' own selection
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--first-cases"):
        firsts: dict[str, pytest.Item] = {}
        for item in items:
            firsts.setdefault(strip_parameters(item.nodeid), item)
        config.hook.pytest_deselected(items=list(set(items).difference(firsts.values())))
        items[:] = firsts.values()
