"""`--first-cases` runs each function once, whatever else selects."""

from support import first_cases

pytest_plugins = ["pytester"]


def test_the_first_case_that_is_selected_runs(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("one", ["left out", "chosen"])
        @pytest.mark.parametrize("other", [1, 2])
        def test_cases(one, other):
            assert (one, other) == ("chosen", 1)

        class TestMore:
            def test_cases(self):
                pass

        def test_single():
            pass
        """
    )
    ran = pytester.inline_run("--first-cases", "-k", "not left", "-p", "no:asyncio", plugins=[first_cases])
    ran.assertoutcome(passed=3)
