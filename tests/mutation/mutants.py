"""The mutants of a module: its source with one small change each, inside a function.

Law: a mutant is named by what it changes, never by where that stands. So an edit elsewhere in the file changes neither
a mutant's name nor its rank in a sample.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

PACKAGES = ("proxy", "rules")
IMPORTED_FROM = Path("src/trimtab")
"""Has a link to each package: `proxy/lru.py` is imported as `trimtab.proxy.lru`, of `src/trimtab/proxy/lru.py`."""
NEGATED: dict[type, type] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BOUNDARY: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SWAPPED: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And}
ROOMS = tuple(f"tests/{package}/" for package in PACKAGES)
OURS = "tests/mutation/"
LAWS = "tests/rules/laws/"
"""They belong to no room: they see all rules."""
KEYED = {"get", "pop", "setdefault"}
"""Methods whose first argument is a key."""
Change = tuple[str, ast.AST, ast.AST]
"""An operator's name, a node, and what replaces it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a module.

    ordinal: how many equal changes stand before this one in the function.
    line, after: where it is, and what it makes of `before`; both only for reading.
    number: its index among all changes of the module as it is now.
    """

    module: str
    function: str
    operator: str
    before: str
    ordinal: int
    line: int
    after: str
    number: int

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What identifies it."""
        return self.module, self.function, self.operator, self.before, self.ordinal

    @property
    def room(self) -> str:
        """The first two parts of the module's path."""
        parts = Path(self.module).parent.parts
        return "/".join(parts[:2])

    def rank(self, seed: int) -> str:
        """Its place in the order of a sample."""
        return sha256("\0".join(map(str, (seed, *self.name))).encode()).hexdigest()

    def __str__(self) -> str:
        """The line that is printed for a survivor."""
        before, after = (text if len(text) <= 100 else f"{text[:97]}..." for text in map(_one_line, self._texts))
        return f"{self.module}:{self.line} {self.function}: {self.operator}: {before}  ->  {after}"

    @property
    def _texts(self) -> tuple[str, str]:
        return self.before, self.after


def _one_line(text: str) -> str:
    return " ".join(text.split())


def find_mutants(root: Path, modules: Iterable[str]) -> list[Mutant]:
    """All mutants of these modules."""
    return [mutant for module in modules for mutant in _find_in(module, (root / module).read_text("utf-8"))]


def _find_in(module: str, source: str) -> Iterator[Mutant]:
    seen: Counter[tuple[str, str, str]] = Counter()
    for number, (function, (operator, node, new)) in enumerate(_list_changes(ast.parse(source))):
        before = ast.unparse(node)
        key = function, operator, before
        yield Mutant(module, *key, seen[key], node.lineno, ast.unparse(new), number)
        seen[key] += 1


def mutate(mutants: Iterable[Mutant], path: Path) -> ast.Module:
    """The module with these mutants of it."""
    tree = ast.parse(path.read_bytes())
    changes = _list_changes(tree)
    news = {node: ast.copy_location(new, node) for _, (_, node, new) in (changes[each.number] for each in mutants)}
    return ast.fix_missing_locations(_Swap(news).visit(tree))


class _Swap(ast.NodeTransformer):
    def __init__(self, news: dict[ast.AST, ast.AST]) -> None:
        self._news = news

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace these nodes."""
        return self._news.get(node) or self.generic_visit(node)


def _list_changes(tree: ast.Module) -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = []
    for node in tree.body:
        _walk(node, (), None, found)
    return found


def _walk(node: ast.AST, scope: tuple[str, ...], function: ast.AST | None, found: list[tuple[str, Change]]) -> None:
    """Collect the changes below a node. Only statements in bodies of functions, since others run at import."""
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope, children = (*scope, node.name), node.body[1:] if ast.get_docstring(node) is not None else node.body
        function = function if isinstance(node, ast.ClassDef) else node
    elif isinstance(node, ast.AnnAssign):
        children = [node.value] if node.value is not None else []
    elif function is not None:
        found += [(".".join(scope), change) for change in _change(node, function)]
    for child in children:
        _walk(child, scope, function, found)


def _change(node: ast.AST, function: ast.AST) -> Iterator[Change]:
    """The changes of one node."""
    match node:
        case ast.Compare(ops=ops):
            yield from _change_comparison(node, ops)
        case ast.Constant(value=bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", node, ast.Constant(value + 1)
        case ast.Return(value=value) if value is not None:
            yield from _change_return(node, value, function)
    yield from _change_operation(node)
    yield from _negate_condition(node)
    yield from _delete(node)
    for key in _keys(node):
        yield "string key", key, ast.Constant(key.value + ("x" if isinstance(key.value, str) else b"x"))


def _change_operation(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub() as op) | ast.AugAssign(op=ast.Add() | ast.Sub() as op):
            yield "sign", node, _copy(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", node, operand
        case ast.BoolOp(op=op):
            yield "boolean", node, _copy(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", node, operand


def _copy(node: ast.AST, **fields: object) -> ast.AST:
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _change_comparison(node: ast.Compare, ops: list[ast.cmpop]) -> Iterator[Change]:
    for operator, table in (("comparison", NEGATED), ("boundary", BOUNDARY)):
        for at, op in enumerate(ops):
            if type(op) in table:
                yield operator, node, _copy(node, ops=[*ops[:at], table[type(op)](), *ops[at + 1 :]])


def _change_return(node: ast.Return, value: ast.expr, function: ast.AST) -> Iterator[Change]:
    """None, or the opposite of a truth that no other operator turns around."""
    returns = getattr(function, "returns", None)
    if isinstance(returns, ast.Name) and returns.id == "bool":
        if not isinstance(value, ast.Compare | ast.Constant | ast.UnaryOp):
            yield "return value", node, ast.Return(ast.UnaryOp(ast.Not(), value))
    elif not (isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))):
        yield "return value", node, ast.Return(ast.Constant(None))


def _negate_condition(node: ast.AST) -> Iterator[Change]:
    """The opposite of a condition that is a value; comparisons and the like have operators of their own."""
    test = getattr(node, "test", None)
    if test is not None and not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield "boolean", test, ast.UnaryOp(ast.Not(), test)


def _delete(node: ast.AST) -> Iterator[Change]:
    """Leave a statement out, unless its absence would surely be an error or would change nothing."""
    match node:
        case ast.Expr(value=ast.Yield() | ast.YieldFrom() | ast.Constant()):
            return
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]) | ast.If(orelse=[]):
            yield "deleted statement", node, ast.Pass()
        case ast.Expr() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Delete():
            yield "deleted statement", node, ast.Pass()


def _keys(node: ast.AST) -> Iterator[ast.Constant]:
    """The texts in a node that are keys: of mappings, or compared with."""
    candidates: list[ast.AST | None] = []
    match node:
        case ast.Dict(keys=keys):
            candidates += keys
        case ast.Subscript(slice=key) | ast.MatchValue(value=key):
            candidates.append(key)
        case ast.Call(func=ast.Attribute(attr=name), args=[key, *_]) if name in KEYED:
            candidates.append(key)
        case ast.Compare(left=left, comparators=others):
            for each in (left, *others):
                candidates += each.elts if isinstance(each, ast.Set | ast.Tuple | ast.List) else [each]
    yield from (each for each in candidates if isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))


def list_modules(root: Path) -> list[str]:
    """The modules of the packages."""
    files = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return sorted(str(path.relative_to(root)) for path in files)


def find_tests(root: Path, module: str) -> tuple[list[str], list[str]]:
    """The test files that mirror a module, and the others of their folder and the ones in it.

    First comes what names the module, then what is nearest: a mutant that a near file sees meets no program's start.
    """
    folder, name = Path(module).parent, Path(module).stem.strip("_")
    names = {path.stem.strip("_") for path in (root / folder).glob("*.py")}
    mirrored, others = [], []
    for path in sorted((root / "tests" / folder).glob("**/test_*.py" if len(folder.parts) > 1 else "test_*.py")):
        fitting = [each for each in names if f"{path.stem}_".startswith(f"test_{each}_")]
        is_mirror = path.parent == root / "tests" / folder and max(fitting, key=len, default="") == name
        (mirrored if is_mirror else others).append(path)
    dotted = module.removesuffix(".py").replace("/", ".")
    others.sort(key=lambda path: (dotted not in path.read_text("utf-8"), len(path.parts)))
    found = [[str(path.relative_to(root)) for path in paths] for paths in (mirrored, others)]
    return found[0], found[1]


def find_elsewhere(root: Path, modules: Sequence[str]) -> list[str]:
    """The test files that may see these modules from outside their folders: of the room, of no room, or by the name."""
    dotted = {module: module.removesuffix(".py").replace("/", ".") for module in modules}
    own = {module: {*chain(*find_tests(root, module))} for module in modules}
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        name, text = str(path.relative_to(root)), path.read_text("utf-8")
        room = "/".join(Path(name).parts[1:3]) + "/" if name.startswith(ROOMS) else ""
        near = [each for each in modules if name not in own[each]]
        sees = name.startswith(LAWS) or any(each.startswith(room) or dotted[each] in text for each in near)
        if sees and not name.startswith(OURS):
            found.append(name)
    return found
