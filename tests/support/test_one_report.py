"""What passes is told once, with all that was noted; all else is told of each phase, as pytest does."""

from support.one_report import OneReport

pytest_plugins = ["pytester"]


def test_only_what_passes_is_told_at_once(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def ends_badly():
            yield
            raise ValueError

        @pytest.fixture
        def notes(record_property):
            record_property("setup", 1)
            yield
            record_property("teardown", 1)

        def test_passes(notes): pass
        def test_fails(): assert False
        def test_ends(ends_badly): pass
        def test_skipped(): pytest.skip("why")
        """
    )
    ran = pytester.inline_run("-p", "no:asyncio", plugins=[OneReport()])
    told = [(report.nodeid.partition("::")[2], report.when) for report in ran.getreports("pytest_runtest_logreport")]
    assert {("setup", 1), ("teardown", 1)} <= set(ran.listoutcomes()[0][0].user_properties)
    assert [when for name, when in told if name == "test_passes"] == ["call"]
    for name in ("test_fails", "test_ends", "test_skipped"):
        assert tuple(when for one, when in told if one == name) == ("setup", "call", "teardown")
