"""Which lumis a family's datasets have already."""

from __future__ import annotations

import pytest

from outputs_app.models import OutputFile, Validity
from outputs_app.owning import lumis_refuse_twice
from tests.support.rows import new_block
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


def test_lumis_that_a_valid_file_of_another_request_has_are_refused_with_the_first_of_them_and_how_many() -> None:
    block = new_block(units=1, done=1)
    file = OutputFile.objects.get(block=block)
    OutputFile.objects.filter(pk=file.pk).update(lumis={"1": [[7, 1], [5, None]], "2": [[5, 1]]})
    name = block.dataset_name
    lumis_refuse_twice(dataset_id=-1, name=name, lumis=[{"1": [(6, 1)]}, {"2": [(7, 1)]}, {"3": [(5, 1)]}])
    lumis_refuse_twice(dataset_id=block.dataset_id, name=name, lumis=[{"1": [(5, 1)]}])
    lumis_refuse_twice(dataset_id=-1, name=f"{name}X", lumis=[{"1": [(5, 1)]}])
    with pytest.raises(LedgerViolation, match=rf"1:5 is valid already in {file.lfn} of .*; 3 lumis of that file"):
        lumis_refuse_twice(dataset_id=-1, name=name, lumis=[{"2": [(5, 1)]}, {"1": [(7, 1), (5, 1)]}, {"1": [(7, 1)]}])
    OutputFile.objects.filter(pk=file.pk).update(validity=Validity.INVALID)
    lumis_refuse_twice(dataset_id=-1, name=name, lumis=[{"1": [(5, 1)]}])
