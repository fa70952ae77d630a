"""JSON to frozen values and back: what is written is what is read, and what is wrong is named with its place."""

from __future__ import annotations

import json
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Optional

import pytest

from dags_app.payload.contract import documents, reports, rules
from dags_app.payload.contract.codes import INVALID_DOCUMENT, PayloadError
from dags_app.payload.contract.convert import Json, one_of, read, to_json
from dags_app.payload.contract.reading import Value, load_document
from tests.support.cases import in_one_test


class Leaf(NamedTuple):
    name: str
    number: Annotated[int, Json(absent=0)]
    at: Optional[int] = None  # noqa: UP045  (read at run time, as on Python 3.9)


@dataclass(frozen=True)
class Tree:
    SCHEMA: ClassVar[str] = "wms2.tree/1"

    kind: Annotated[str, one_of("oak", "elm")]
    height: float
    is_old: Annotated[bool, Json(key="old")]
    leaves: tuple[Leaf, ...]
    by_side: dict[str, Leaf]
    best: Optional[Leaf]  # noqa: UP045
    anything: Any
    notes: tuple[str, ...] = ()

    def left_out(self) -> tuple[str, ...]:
        return () if self.notes else ("notes",)

    def problem(self) -> str:
        return "a tree has a height" if self.height <= 0 else ""


TREE = Tree("oak", 2.5, True, (Leaf("a", 1), Leaf("b", 0, 7)), {"left": Leaf("c", 2)}, None, {"x": [1]})
WRITTEN = {
    "schema": "wms2.tree/1",
    "kind": "oak",
    "height": 2.5,
    "old": True,
    "leaves": [{"name": "a", "number": 1, "at": None}, {"name": "b", "number": 0, "at": 7}],
    "by_side": {"left": {"name": "c", "number": 2, "at": None}},
    "best": None,
    "anything": {"x": [1]},
}


def test_a_value_is_written_in_the_order_of_its_fields_and_read_again() -> None:
    assert json.dumps(to_json(TREE)) == json.dumps(WRITTEN)
    assert read(Value(WRITTEN, "tree.json"), Tree) == TREE


def test_a_field_that_is_absent_or_null_is_its_default() -> None:
    bare = {"schema": "wms2.tree/1", "kind": "elm", "height": 1, "old": False, "leaves": [{"name": "a"}], "by_side": {}}
    found = read(Value({**bare, "anything": 0, "notes": None, "unknown": 1}, "tree.json"), Tree)
    assert found == Tree("elm", 1.0, False, (Leaf("a", 0),), {}, None, 0)


def test_a_field_that_is_given_is_not_read() -> None:
    without = {name: value for name, value in WRITTEN.items() if name != "kind"}
    assert read(Value(without, "tree.json"), Tree, kind="oak") == TREE


@in_one_test(
    "path, value, message",
    [
        ("kind", "ash", "tree.json.kind: expected one of oak, elm, found 'ash'"),
        ("height", "2", 'tree.json.height: expected a number, found "2"'),
        ("height", True, "tree.json.height: expected a number, found true"),
        ("height", float("nan"), "tree.json.height: expected a number, found nan"),
        ("height", -1, "tree.json: a tree has a height"),
        ("old", 1, "tree.json.old: expected true or false, found 1"),
        ("old", None, "tree.json.old: expected true or false, found null"),
        ("leaves", {}, "tree.json.leaves: expected a list, found {}"),
        ("leaves", [{"name": "a"}, {}], "tree.json.leaves[1]: the field 'name' is missing"),
        ("leaves", [{"name": "a", "number": True}], "tree.json.leaves[0].number: expected a whole number, found true"),
        ("leaves", ["a"], 'tree.json.leaves[0]: expected an object, found "a"'),
        ("by_side", {"left": {"name": 1}}, "tree.json.by_side.left.name: expected a string, found 1"),
        ("best", {"name": "a", "at": 1.5}, "tree.json.best.at: expected a whole number, found 1.5"),
        ("notes", ["a", 2], "tree.json.notes[1]: expected a string, found 2"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(PayloadError) as refused:
        read(Value({**WRITTEN, path: value}, "tree.json"), Tree)
    assert (refused.value.code, refused.value.message) == (INVALID_DOCUMENT, message)


@pytest.mark.parametrize("module", [documents, reports, rules], ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_field_of_the_side_files_has_a_type_that_can_be_read(module: Any) -> None:
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and (is_dataclass(each) or hasattr(each, "_fields")) and each.__module__ == module.__name__
    ]
    for kind in found:
        with pytest.raises(PayloadError):
            read(Value([], "none.json"), kind)
    assert len(found) > 2


def test_a_document_with_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({**WRITTEN, "height": float("inf")}))
    with pytest.raises(PayloadError, match=r"tree\.json\.height: expected a number, found inf"):
        read(load_document(path, Tree.SCHEMA), Tree)
