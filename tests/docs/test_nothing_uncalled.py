"""Nothing public stands there that no shipped code uses: a test is no use of it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

PRODUCT = ("wms2", "sites_app", "dags_app", "outputs_app", "requests_app", "deploy")
#: Read by Django, gunicorn, Rucio, CMSSW's configurations or HTCondor by their names.
READ_BY_NAME = re.compile(
    r"/apps\.py|wms2/api/schema\.py|/urls\.py|/actions(\.py|/)|wms2/settings/|check_settings|wms2/formats|/migrations/|fwcore"
    r"|deploy/(rucio/(policy|inside)|run|demo/configcache|simulators/sso/(settings|adapter))"
)


def sources() -> list[Path]:
    """Shipped Python, and what measures it."""
    return [ROOT / "manage.py", *sorted(path for name in (*PRODUCT, "bench") for path in (ROOT / name).rglob("*.py"))]


def used_in(tree: ast.AST) -> Iterator[str]:
    """Every name that is loaded, every attribute, and the words of strings, which may name what is imported by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 300:
            yield from re.findall(r"\w+", node.value)


def public_of(tree: ast.Module) -> Iterator[str]:
    """Top-level functions, classes and constants; what a decorator registers is used by it."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            by = " ".join(ast.unparse(each) for each in node.decorator_list)
            if not by or "dataclass" in by:
                yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("answer(", "rows(")):
            continue  # nested answers find each other by the type that they are of
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_nothing_public_is_uncalled() -> None:
    trees = {path: ast.parse(path.read_text()) for path in sources()}
    used = Counter(name for tree in trees.values() for name in used_in(tree))
    for page in [*(ROOT / "templates").rglob("*.html"), *(ROOT / "deploy").rglob("*.yml"), ROOT / "pyproject.toml"]:
        used.update(re.findall(r"\w+", page.read_text()))
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        if not READ_BY_NAME.search(str(path.relative_to(ROOT)))
        for name in public_of(tree)
        if not used[name] and not name.startswith("__")
    ]
    assert unused == []
