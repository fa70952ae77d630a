"""How large the code is: a table of lines and concepts, and limits beyond which it does not grow without a decision.

    python -m deploy.stack.house      prints the table; ends with 1 where a limit is passed

A line of code is neither blank, nor a comment, nor in a docstring or an import. What is decided stands in ``LIMITS``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PRODUCT = ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app")
#: More than these fails the check; a lower number is written down here with the change that reached it.
LIMITS: Mapping[str, int] = {
    "product, lines of code": 47_600,
    "settings": 110,
    "limits that operators change": 42,
    "serializers written by hand": 21,
    "dataclasses built at one place at most": 66,
    "functions of at most 3 lines with one caller": 69,
    "functions of cyclomatic complexity above 20": 0,
    "functions of cyclomatic complexity above 10": 12,
    "modules that round_plan reaches": 121,
    "loose modules in wms2": 14,
}
_ROOT = Path(__file__).resolve().parents[2]
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHORT_LINES = 3
_PLANNING = ("requests_app.work.planner", "round_plan")


def measure() -> dict[str, int]:
    """The table: what is counted, and its number."""
    product = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in _files(*PRODUCT) if "migrations" not in path.parts]
    trees = [tree for _, tree in product]
    return {
        "product, lines of code": sum(len(_lines_of_code(path, tree)) for path, tree in product),
        "product, physical lines without migrations": sum(_physical(path) for path, _ in product),
        "migrations, files": len([path for path in _files(*PRODUCT) if path.parent.name == "migrations" and path.stem[0] == "0"]),
        "deploy, physical lines": sum(map(_physical, _files("deploy"))),
        "tests, physical lines": sum(map(_physical, _files("tests"))),
        "settings": _fields(path for path in _files("wms2/conf") if path.name != "limits.py"),
        "limits that operators change": _fields([_ROOT / "wms2/conf/limits.py"]),
        "serializers written by hand": sum(_is_serializer(node) for tree in trees for node in ast.walk(tree)),
        "dataclasses built at one place at most": _built_once(trees),
        f"functions of at most {_SHORT_LINES} lines with one caller": _called_once(trees),
        "functions of cyclomatic complexity above 20": _complex(20),
        "functions of cyclomatic complexity above 10": _complex(10),
        "modules that round_plan reaches": _reached({_dotted(path): tree for path, tree in product}, _PLANNING),
        "loose modules in wms2": len(list((_ROOT / "wms2").glob("[a-z]*.py"))),
        "ADRs": len(list((_ROOT / "docs/adr").glob("[0-9]*.md"))),
    }


def main() -> int:
    """Print the table; 1 where a limit is passed."""
    passed = []
    for name, number in measure().items():
        limit = LIMITS.get(name)
        print(f"{name:<52} {number:8,}" + (f"   at most {limit:,}" if limit is not None else ""))
        if limit is not None and number > limit:
            passed.append(name)
    if passed:
        print(f"more than deploy/stack/house.py allows: {', '.join(passed)}", file=sys.stderr)
    return 1 if passed else 0


def _files(*roots: str) -> Iterator[Path]:
    for root in roots:
        yield from sorted((_ROOT / root).rglob("*.py"))


def _physical(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _lines_of_code(path: Path, tree: ast.Module) -> set[int]:
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and _is_text(node.value)):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return {number for number, text in lines if text.strip() and not text.lstrip().startswith("#")} - left_out


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _fields(paths: Iterable[Path]) -> int:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    classes = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    found = (node for each in classes for node in each.body if isinstance(node, ast.AnnAssign))
    return sum("ClassVar" not in ast.unparse(node.annotation) for node in found)


def _is_serializer(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Serializer") for base in node.bases)


def _names_used(trees: list[ast.Module]) -> Counter[str]:
    used = (
        node.id if isinstance(node, ast.Name) else node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return Counter(used)


def _names_called(trees: list[ast.Module]) -> Counter[str]:
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return Counter(ast.unparse(function).rpartition(".")[2] for function in calls)


def _built_once(trees: list[ast.Module]) -> int:
    built = _names_called(trees)
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    made = [node.name for node in classes if any("dataclass" in ast.unparse(each) for each in node.decorator_list)]
    return sum(built[name] <= 1 for name in made)


def _called_once(trees: list[ast.Module]) -> int:
    """Those that are handed over as a value (handlers, callbacks, filters) have no caller that they could stand in."""
    used, called = _names_used(trees), _names_called(trees)
    functions = (node for tree in trees for node in tree.body if isinstance(node, _Function) and not node.decorator_list)
    once = [node for node in functions if used[node.name] == 1 and called[node.name] == 1]
    return sum(_body_lines(node) <= _SHORT_LINES for node in once)


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")


def _reached(trees: Mapping[str, ast.Module], start: tuple[str, str]) -> int:
    """Modules of the functions and classes that the start names, and these in turn; methods count with their class."""
    defined: dict[tuple[str, str], ast.AST] = {}
    imported: dict[tuple[str, str], tuple[str, str]] = {}
    for module, tree in trees.items():
        defined |= {(module, node.name): node for node in tree.body if isinstance(node, (*_Function, ast.ClassDef))}
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level)
        imported |= {
            (module, each.asname or each.name): (node.module or "", each.name) for node in imports for each in node.names
        }
    seen: set[tuple[str, str]] = set()
    left = [start]
    while left:
        place = left.pop()
        if place in imported:
            left.append(imported[place])
        elif place in defined and place not in seen:
            seen.add(place)
            for node in ast.walk(defined[place]):
                if isinstance(node, ast.Name):
                    left.append((place[0], node.id))
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    left.append((".".join(imported.get((place[0], node.value.id), ())), node.attr))
    return len({module for module, _ in seen})


def _complex(most: int) -> int:
    options = ("--isolated", "--select", "C901", "--output-format", "concise", "--exit-zero", "--quiet", "--no-cache")
    limit = ("--config", f"lint.mccabe.max-complexity={most}")
    argv = [str(Path(sys.executable).parent / "ruff"), "check", *options, *limit, *PRODUCT]
    result = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, check=True)
    return sum("C901" in line for line in result.stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main())
