"""What passes is told once, with all that was noted; all else is told of each phase, as pytest does."""

from support.one_report import OneReport

pytest_plugins = ["pytester"]


def test_only_what_passes_is_told_at_once(pytester):
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(call):
            report = yield
            report.user_properties.append((call.when, 1))
            return report
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def begins_badly():
            raise ValueError

        @pytest.fixture
        def ends_badly():
            yield
            raise ValueError

        def test_passes(): pass
        def test_fails(): assert False
        def test_begins(begins_badly): pass
        def test_ends(ends_badly): pass
        def test_skipped(): pytest.skip("why")

        @pytest.mark.xfail
        def test_known(): assert False
        """
    )
    ran = pytester.inline_run("-p", "no:asyncio", plugins=[OneReport()])
    told = [(report.nodeid.partition("::")[2], report.when) for report in ran.getreports("pytest_runtest_logreport")]
    phases = ("setup", "call", "teardown")
    assert ran.listoutcomes()[0][0].user_properties == [(phase, 1) for phase in phases]
    assert [when for name, when in told if name == "test_passes"] == ["call"]
    assert {when for name, when in told if name == "test_begins"} == {"setup", "teardown"}
    for name in ("test_fails", "test_ends", "test_skipped", "test_known"):
        assert tuple(when for one, when in told if one == name) == phases
    ran.assertoutcome(passed=2, failed=3, skipped=2)
