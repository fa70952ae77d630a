"""Which lumis a family's datasets have already."""

from __future__ import annotations

import re
from functools import partial

import pytest

from outputs_app.blocks.ownership import lumis_twice
from outputs_app.models import OutputFile, Validity
from tests.support.rows import new_block

pytestmark = pytest.mark.django_db


def test_lumis_that_a_valid_file_of_another_request_has_are_refused_with_the_first_of_them_and_how_many() -> None:
    block = new_block(units=1, done=1)
    file = OutputFile.objects.get(block=block)
    OutputFile.objects.filter(pk=file.pk).update(lumis={"1": [[7, 1], [5, None]], "2": [[5, 1]]})
    name = block.dataset_name
    new = partial(lumis_twice, dataset_id=-1, name=name)
    assert not new(lumis=[{"1": [(6, 1)]}, {"2": [(7, 1)]}, {"3": [(5, 1)]}])
    assert not new(lumis=[{"1": [(5, 1)]}], dataset_id=block.dataset_id)
    assert not new(lumis=[{"1": [(5, 1)]}], name=f"{name}X")
    why = new(lumis=[{"2": [(5, 1)]}, {"1": [(7, 1), (5, 1)]}, {"1": [(7, 1)]}])
    assert re.search(rf"1:5 is valid already in {file.lfn} of .*; 3 lumis of that file", why)
    OutputFile.objects.filter(pk=file.pk).update(validity=Validity.INVALID)
    assert not new(lumis=[{"1": [(5, 1)]}])
