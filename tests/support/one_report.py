"""Beside other processes of tests, a test that passes is told in one message, not in one of each of its phases.

To write and read such a message takes longer than most tests. What the phases have noted is told with the test itself.
"""

import pytest
from _pytest.runner import runtestprotocol


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(OneReport())


class OneReport:
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        calls = [report for report in reports if report.when == "call"]
        if calls and all(report.passed for report in reports):
            calls[0].user_properties = [told for report in reports for told in report.user_properties]
            reports = calls
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True
