"""The invented repository of the demo, and the tools that work in it."""

import re

from trimtab.proxy.cli.demo_session import PACKAGES, SEARCH_HITS, Project

SOURCE, TESTS = "ferry/fares/pricing.py", "tests/fares/test_pricing.py"


def test_the_project_is_the_same_every_time() -> None:
    """The demo's figures are those of one session: nothing in it is drawn by chance."""
    assert Project().files == Project().files


def test_functions_of_a_module_have_names_of_their_own() -> None:
    """No module of the invented repository defines a name twice."""
    for package, names in PACKAGES.items():
        for name in names:
            functions = re.findall(r"def (\w+)", Project().files[f"ferry/{package}/{name}.py"])
            assert len(set(functions)) == len(functions) >= 4


def test_tools_do_what_they_say() -> None:
    """What is written is found and read. A search shows a bounded number of lines and counts all."""
    project = Project()
    assert project.write_file(SOURCE, "one: float\ntwo") == f"{SOURCE}: 2 lines written"
    assert project.read_file(SOURCE) == "    1  one: float\n    2  two"
    assert project.search("float", SOURCE) == f"{SOURCE}:1: one: float\n(1 matches in all)"
    assert (SOURCE in project.list_files("ferry"), TESTS in project.list_files("ferry")) == (True, False)
    assert len(project.search("def ", "").splitlines()) == SEARCH_HITS + 1


def test_tests_fail_while_a_module_and_its_tests_disagree() -> None:
    """Only the tests of the module fail, and all of them. They pass again when both files use cents."""
    project = Project()
    assert "FAILED" not in project.run_tests("tests")
    project.write_file(SOURCE, re.sub(r"\bfloat\b", "Cents", project.files[SOURCE]))
    failed = [line for line in project.run_tests("tests").splitlines() if " FAILED " in line]
    assert {line.split("::")[0] for line in failed} == {TESTS}
    assert "PASSED" not in project.run_tests(TESTS)
    project.write_file(TESTS, project.files[TESTS].replace(".25", "25"))
    assert "FAILED" not in project.run_tests("tests")
