"""Whatever a document holds, it is refused or accepted, never a crash; and what is accepted survives being stored."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dags_app.planning.specs import WorkflowSpec
from requests_app.intake import complete, known, lexicon, merge_document, prepare_plan_spec
from tests.support.intake import CHAIN_CONFIGS, REPROCESSING_CONFIGS, Document, chain, read, reprocessing, tasks
from wms2.errors import DocumentRefused

_ADAPTER = TypeAdapter(WorkflowSpec)
_FIELDS = sorted(
    known.USED_TOP
    | known.USED_STEP
    | set(known.FEATURES)
    | set(known.WARNED)
    | known.USED_TASK
    | {"SplittingParams", "Step1", "Step2", "Step4", "Task1", "Task2", "SkimName1"}
)

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20),
    st.sampled_from(["", "true", "False", "8", "8.0", "-1", "1e9", "nan", "..", "/a/b/RAW", "T2_CH_CERN", 0, 1, 10**12]),
    st.sampled_from(["StepChain", "TaskChain", "ReReco", "EventBased", "FileBased", "LumiBased", "Gen"]),
)  # fmt: skip
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(["Gen", "Digi", "Reco", "1"]), st.text(max_size=5)), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def _mutated(draw: st.DrawFn) -> Document:
    """A good document with up to four fields, anywhere, removed or replaced."""
    document = copy.deepcopy(draw(st.sampled_from([chain(), reprocessing(), tasks()])))
    for _ in range(draw(st.integers(0, 4))):
        parts = [
            document,
            *(value for key, value in document.items() if key.startswith(("Step", "Task")) and isinstance(value, dict)),
        ]
        part = draw(st.sampled_from(parts))
        field = draw(
            st.one_of(st.sampled_from(_FIELDS), st.sampled_from(sorted(part)) if part else st.nothing(), st.text(max_size=8))
        )
        if draw(st.booleans()):
            part.pop(field, None)
        else:
            part[field] = draw(_values)
    return document


def _typed(document: Any) -> WorkflowSpec | None:
    try:
        return complete(read(document), {**CHAIN_CONFIGS, **REPROCESSING_CONFIGS})
    except DocumentRefused as refused:
        assert refused.problems
        assert all(problem.field and problem.problem for problem in refused.problems)
        assert len(set(refused.problems)) == len(refused.problems)
        return None


@given(_mutated())
@settings(max_examples=200, deadline=None)
def test_a_mutated_document_is_refused_with_reasons_or_accepted_as_safe(document: Document) -> None:
    spec = _typed(document)
    if spec is None:
        return
    assert _ADAPTER.validate_json(_ADAPTER.dump_json(spec)) == spec
    assert lexicon.REQUEST_NAME.allows(spec.request_name)
    assert spec.resources.memory_mb <= 3000 * spec.resources.cores
    assert (spec.generation is None) != (spec.input is None)
    assert spec.outputs
    for output in spec.outputs:
        assert lexicon.DATASET.allows(output.dataset)
        for base in (output.merged_lfn_base, output.unmerged_lfn_base):
            assert base.startswith("/store/")
            assert "//" not in base
            assert base.isascii()
            assert not set(base) & set(" \t\n'\"$;\\")
    json.dumps(document, allow_nan=False)  # what was accepted can be stored


@given(_values)
@settings(max_examples=100, deadline=None)
def test_any_json_value_is_refused_or_accepted(value: Any) -> None:
    _typed(value)
    _typed({"createRequest": value, "assignRequest": value})
    _typed({"result": [value]})
    _typed({**chain(), "Step1": value})


@given(_mutated(), _mutated())
@settings(max_examples=80, deadline=None)
def test_any_pair_is_refused_or_merged_without_touching_it(created: Document, assigned: Document) -> None:
    pair = {"createRequest": created, "assignRequest": assigned}
    before = copy.deepcopy(pair)
    try:
        merged = merge_document(pair)
    except DocumentRefused:
        return
    assert repr(pair) == repr(before)
    assert _typed(merged) == _typed(pair)


@given(_mutated(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_planning_takes_any_document_or_refuses_it(document: Document, files_given: bool) -> None:
    try:
        spec = prepare_plan_spec(document, files_given=files_given)
    except DocumentRefused as refused:
        assert refused.problems
        return
    assert (spec.generation is None) != (spec.input is None)
    assert _ADAPTER.validate_json(_ADAPTER.dump_json(spec)) == spec
