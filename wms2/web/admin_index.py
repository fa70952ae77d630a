"""What the admin's first page offers: eight sections by task, each to a few tables. All tables are below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Section(NamedTuple):
    """A task with its tables' names and addresses, as far as the user may see them."""

    name: str
    does: str
    tables: Sequence[tuple[str, str]]


#: A task, what one does there in one line, and its tables by the names of their models, the first of all first.
_TASKS = (
    (
        "Requests", "Import, hold, release, abort, group; why one stands where it stands.",
        ("Request", "Workflow", "RequestGroup", "ReqMgr2Request"),
    ),
    ("Running work", "DAGs, their work units and jobs; hold or release a DAG.", ("DAG", "WorkUnit", "Round", "SiteJob")),
    (
        "Failures", "What failed where, with samples; rules that say what is tried again.",
        ("FailureGroup", "FailureSample", "FailureRule", "FailedInputFile"),
    ),
    (
        "Outputs", "Blocks, files and their rules; retry or discard what DBS or Rucio refused.",
        ("ProcessingBlock", "Effect", "OutputFile", "OutputDataset"),
    ),
    ("Lost and doubtful files", "Decide integrity cases; settle differences.", ("IntegrityCase", "Drift", "Comparison")),
    (
        "Sites and schedds", "Ban or drain a site; onboard, drain or close a schedd.",
        ("Site", "SiteBan", "Schedd", "Pool"),
    ),
    (
        "Limits and queue", "How much runs at once and of whom; workers, dead letters.",
        ("Limit", "AdmissionLimit", "WorkerPool", "DeadLetter"),
    ),
    (
        "People and audit", "Who may do what, and who did what.",
        ("AuditEntry", "RoleAssignment", "User", "ServiceAccount", "BulkRun"),
    ),
)  # fmt: skip


def sections(app_list: Sequence[Mapping[str, Any]]) -> list[Section]:
    """From Django's list of the apps and tables that the user may see; a task without any is left out."""
    seen = {table["object_name"]: (table["name"], table["admin_url"]) for app in app_list for table in app["models"]}
    found = [Section(name, does, [seen[table] for table in tables if table in seen]) for name, does, tables in _TASKS]
    return [section for section in found if section.tables]
