"""Finds out whether a test sees a mutant: at first quickly, then again for those that seem to live.

Quickly: pytest collects the mirrored tests of all mutants once, and each mutant is a fork in which the live function
has the mutated code. That does not reach what a function has done while modules were imported, nor a program that a
test starts. So a mutant that lives is written to a copy of the packages, and meets all tests of its folder, too. Those
that still live are written to one copy, all at once, for all other tests that are not slow: few of them fail, and each
mutant then meets these alone.
"""

import ast
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import CodeType, FunctionType

import pytest
from hypothesis import Phase, settings
from mutation.forks import be_quiet, run_forked
from mutation.mutants import IMPORTED_FROM, Mutant, find_elsewhere, find_tests, mutate

STAGES = MIRROR, FOLDER, ELSEWHERE = "mirror", "folder", "elsewhere"
LIVE = ""
BROKEN = -1
"""In place of a mutant's number: the test fails without a mutation."""
REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is imported already
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-W", REWRITTEN)
QUICK = ("-m", "not slow and not measured", "--hypothesis-profile=quick")
PARTS = 4
"""Of the tests elsewhere, each a process."""
MOST_FAILURES = 5
"""In a part, before the mutants that are seen are left out. Chosen: one mutant may fail hundreds of tests."""
Key = tuple[str, str, int]
Copies = Mapping[str, Sequence[Mutant]]
"""The mutants in the copy of each module, of which there may be none."""


class _Watch:
    """Notes the tests that fail.

    Examples are not made smaller: nobody reads them. Tests that need recorded data are left out, so that the verdict is
    the same without.
    """

    def __init__(self, begin_test: Callable[[], None] = lambda: None) -> None:
        self.failed, self.begin_test = list[str](), begin_test

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        reasons = ((item, [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]) for item in items)
        items[:] = [item for item, told in reasons if not any("recorded data" in reason for reason in told)]

    def pytest_collection_finish(self) -> None:
        settings.register_profile("mutants", settings.default, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    def pytest_runtest_logstart(self) -> None:
        self.begin_test()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid or "collection")


class _Quick(_Watch):
    """Judges mutants in place of pytest's own loop, each in a fork.

    A test that killed runs once more without a mutation. If it fails there, too (a busy machine), it killed nothing.
    """

    def __init__(self, root: Path, mutants: Sequence[Mutant], tell: Callable[[int, str], None]) -> None:
        super().__init__()
        self.root, self.mutants, self.tell = root, mutants, tell
        self.items: dict[str, list[pytest.Item]] = {}
        self.functions: dict[Key, list[FunctionType]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each mutant's tests until one fails."""
        if session.testsfailed:
            return False
        for item in session.items:
            for name in (str(item.path.relative_to(self.root)), item.nodeid):
                self.items.setdefault(name, []).append(item)
        self.functions = _find_functions()
        gc.freeze()
        verdicts = dict(run_forked(self.mutants, self._meet))
        killers = sorted(self.items.keys() & {*verdicts.values()})
        broken = {killer for killer, failed in run_forked(killers, self._check) if failed}
        for killer in broken:
            self.tell(BROKEN, killer)
        for mutant, killer in verdicts.items():
            self.tell(self.mutants.index(mutant), LIVE if killer in broken else killer)
        return True

    def _meet(self, mutant: Mutant, begin_test: Callable[[], None]) -> str:
        if not _replace(mutant, self.root / IMPORTED_FROM / mutant.module, self.functions):
            return LIVE
        return self._run(find_tests(self.root, mutant.module)[0], begin_test)

    def _check(self, killer: str, begin_test: Callable[[], None]) -> str:
        return self._run([killer], begin_test)

    def _run(self, names: Sequence[str], begin_test: Callable[[], None]) -> str:
        self.begin_test = begin_test
        todo = [item for name in names for item in self.items.get(name, [])]
        for item, following in zip(todo, (*todo[1:], None), strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                break
        return self.failed[0] if self.failed else LIVE


def _find_functions() -> dict[Key, list[FunctionType]]:
    gc.unfreeze()
    found: dict[Key, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found.setdefault(_identify(each.__code__), []).append(each)
    return found


def _identify(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _replace(mutant: Mutant, path: Path, functions: dict[Key, list[FunctionType]]) -> bool:
    """Give the live functions their mutated code; whether there is one."""
    old, new = (compile(each, path, "exec", dont_inherit=True) for each in (path.read_bytes(), mutate([mutant], path)))
    codes = set(_list_codes(old))
    changed = [code for code in _list_codes(new) if code not in codes]
    live = [(function, code) for code in changed for function in functions.get(_identify(code), [])]
    for function, code in live:
        if function.__code__.co_freevars == code.co_freevars:
            function.__code__ = code
    return bool(live)


def _list_codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _list_codes(each)


class _Copies:
    """Judges mutants that are written to copies of the packages."""

    def __init__(self, root: Path, folder: Path, broken: Sequence[str], warn: Callable[[str], None]) -> None:
        self._root, self._folder, self._warn = root, folder, warn
        self._broken = list(broken)

    def judge_in_folder(self, mutant: Mutant, begin_test: Callable[[], None]) -> str:
        """The test that fails, of those of the mutant's folder."""
        mirrored, others = find_tests(self._root, mutant.module)
        return self._run(_group([mutant]), [*mirrored, *others], begin_test, "-x").partition("\n")[0]

    def judge_elsewhere(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant that is seen, with the test that fails: of all that are not slow and not of its folder.

        Of each function one mutant at a time: else one could hide another.
        """
        living = list({mutant.name[:2]: mutant for mutant in mutants}.values())
        later = [mutant for mutant in mutants if mutant not in living]
        files = find_elsewhere(self._root, [mutant.module for mutant in living])
        while living and (failing := self._find_failing(living, files)):
            broken = self._find_broken(failing, [mutant.module for mutant in living])
            verdicts = self._judge_alone(living, [name for name in failing if name not in broken])
            living = [mutant for mutant in living if verdicts[mutant] == LIVE]
            yield from ((mutant, killer) for mutant, killer in verdicts.items() if killer != LIVE)
            if not broken and len(living) == len(verdicts):
                self._leave_out(failing, "only with all mutants at once")
        if later:
            yield from self.judge_elsewhere(later)

    def _find_failing(self, mutants: Sequence[Mutant], files: Sequence[str]) -> list[str]:
        """The tests that fail with all these mutants at once; a part of the files as a whole if it does not end."""
        parts = [files[start::PARTS] for start in range(PARTS)]
        options = (*QUICK, f"--maxfail={MOST_FAILURES}")
        found = list[str]()
        for part, told in run_forked(
            parts, lambda part, begin_test: self._run(_group(mutants), part, begin_test, *options)
        ):
            found += told.splitlines() if not told or "::" in told else part
        return found

    def _find_broken(self, failing: Sequence[str], modules: Sequence[str]) -> list[str]:
        """Those that fail without a mutation, too: with mere copies of these modules."""
        copies = dict[str, list[Mutant]]((module, []) for module in modules)
        ((_, told),) = run_forked([copies], lambda each, begin: self._run(each, failing, begin, *QUICK))
        broken = told.splitlines()
        if not all("::" in name for name in broken):
            message = f"without a mutation, the tests cannot be run: try pytest {' '.join(failing)}"
            raise RuntimeError(message)
        self._leave_out(broken, "without a mutation, too")
        return broken

    def _judge_alone(self, mutants: Sequence[Mutant], tests: Sequence[str]) -> dict[Mutant, str]:
        return dict(run_forked(mutants, lambda mutant, begin: self._run(_group([mutant]), tests, begin, *QUICK, "-x")))

    def _leave_out(self, broken: Iterable[str], when: str) -> None:
        for name in broken:
            self._warn(f"fails {when}: {name}")
            self._broken.append(name)

    def _run(self, copies: Copies, tests: Sequence[str], begin_test: Callable[[], None], *options: str) -> str:
        """The functions that fail with these copies, a line each."""
        if not tests:
            return LIVE
        place = Path(mkdtemp(dir=self._folder))
        _lay_out(self._root, copies, place)
        sys.path.insert(0, str(place))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
        os.environ["PYTHONSAFEPATH"] = "1"
        watch = _Watch(begin_test)
        left_out = [f"--deselect={name}" for name in self._broken]
        status = pytest.main([*OPTIONS, *options, *left_out, *tests], plugins=[watch])
        if status not in {0, 5} and not watch.failed:
            return "pytest"
        return "\n".join(dict.fromkeys(name.partition("[")[0] for name in watch.failed))


def _group(mutants: Iterable[Mutant]) -> Copies:
    copies: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        copies.setdefault(mutant.module, []).append(mutant)
    return copies


def _lay_out(root: Path, copies: Copies, folder: Path) -> None:
    """Make a folder with the package `trimtab`, in which these are mutated. All else are links into the tree."""
    source, target = root / IMPORTED_FROM, folder / IMPORTED_FROM.name
    modules = {Path(module) for module in copies}
    inner = {parent for module in modules for parent in module.parents}
    for each in sorted(inner):
        (target / each).mkdir()
        for path in (source / each).iterdir():
            name = path.relative_to(source)
            if name not in inner | modules and path.name != "__pycache__":
                (target / name).symlink_to(path)
    for module, mutants in copies.items():
        (target / module).write_text(ast.unparse(mutate(mutants, root / module)), "utf-8")


def judge(root: Path, mutants: Sequence[Mutant], warn: Callable[[str], None]) -> Iterator[tuple[Mutant, str, str]]:
    """Each mutant that is seen, with the stage and the test that fails; that is `time` if one would not end.

    `warn` is told what is no verdict: tests that fail without a mutation. They are left out.
    """
    living, broken = list[Mutant](), list[str]()
    for number, killer in _judge_quickly(root, mutants):
        if number == BROKEN:
            broken.append(killer)
            warn(f"fails without a mutation, too: {killer}")
        elif killer == LIVE:
            living.append(mutants[number])
        else:
            yield mutants[number], MIRROR, killer
    with TemporaryDirectory() as folder:
        copies = _Copies(root, Path(folder), broken, warn)
        for mutant, killer in list(run_forked(living, copies.judge_in_folder)):
            if killer != LIVE:
                living.remove(mutant)
                yield mutant, FOLDER, killer
        yield from ((mutant, ELSEWHERE, killer) for mutant, killer in copies.judge_elsewhere(living))


def _judge_quickly(root: Path, mutants: Sequence[Mutant]) -> Iterator[tuple[int, str]]:
    """Judge by the mirrored tests alone, in a process of its own: this one must not import what is mutated."""
    files = sorted({file for mutant in mutants for file in find_tests(root, mutant.module)[0]})
    pipe, end = os.pipe()
    pid, status = os.fork(), 1
    if not pid:
        os.close(pipe)
        be_quiet()
        quick = _Quick(root, mutants, lambda number, killer: _tell(end, number, killer))
        try:
            status = int(pytest.main([*OPTIONS, *files], plugins=[quick]))
        finally:
            os._exit(status)
    os.close(end)
    with os.fdopen(pipe, encoding="utf-8") as lines:
        for line in lines:
            number, _, killer = line.rstrip("\n").partition(" ")
            yield int(number), killer
    _, status = os.waitpid(pid, 0)
    if status:
        message = f"without a mutation, the tests cannot be run: try pytest {' '.join(files)}"
        raise RuntimeError(message)


def _tell(end: int, number: int, killer: str) -> None:
    os.write(end, f"{number} {killer.splitlines()[0] if killer else LIVE}\n".encode())
