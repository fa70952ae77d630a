"""``merge_input.json``: the reports of a unit's processing nodes, handed to its merge job. Owns that document.

``collect`` is the PRE script of the merge node.
"""

from __future__ import annotations

from pathlib import Path

from ..contract import documents, files, scripts
from ..contract.documents import UnitDocument
from ..contract.layout import MERGE_INPUT_FILE, MERGE_INPUT_SCHEMA, REPORT_SCHEMA
from ..contract.reading import check_schema, load_document
from ..contract.reports import NodeReport, accepted_report, node_report


def collect(directory: Path) -> int:
    """Write ``merge_input.json`` of the unit in ``directory`` from the reports its nodes' POST scripts accepted; 0.

    PayloadError when a node has no accepted report, or one from another site than the unit's.
    """
    unit = documents.read_unit(directory)
    site = scripts.elected_site(directory)
    reports = [accepted_report(directory, unit, job.node, site)[0].raw for job in unit.jobs]
    document = {"schema": MERGE_INPUT_SCHEMA, "unit": unit.unit, "reports": reports}
    files.write_json(directory / MERGE_INPUT_FILE, document)
    return 0


def read_merge_input(directory: Path, unit: UnitDocument) -> tuple[NodeReport, ...]:
    """The reports in ``merge_input.json``: exactly one of every node of the unit, in the unit's order."""
    document = load_document(directory / MERGE_INPUT_FILE, MERGE_INPUT_SCHEMA)
    found: dict[str, NodeReport] = {}
    for report in document["reports"].items():
        check_schema(report, REPORT_SCHEMA)
        node = report["node"].text()
        if node in found:
            raise report.refuse(f"a second report of {node}")
        found[node] = node_report(report, unit, node)
    lfns = [file.lfn for each in found.values() for file in each.outputs]
    if len(set(lfns)) != len(lfns):
        raise document["reports"].refuse(f"two reports have the file {next(lfn for lfn in lfns if lfns.count(lfn) > 1)}")
    wanted = [job.node for job in unit.jobs]
    if set(wanted) != set(found):
        missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise document["reports"].refuse(f"no report of {missing}" if missing else f"{extra} do not belong to {unit.unit}")
    return tuple(found[node] for node in wanted)
