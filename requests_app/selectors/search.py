"""What a name, an id or a path is of: the one search box of pages and admin, and ``GET /api/v1/search``.

By its form a text is looked for among some kinds only. Each look-up is one statement over an index that ends after a few rows,
so that it costs the same with 100,000 requests; sites and schedds, of which there are few, are found by any part of their names.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Collate

from dags_app.models import DAG, FailureSample, SiteJob
from outputs_app.models import OutputDataset, OutputFile, ProcessingBlock
from requests_app.models import InputFile, Request, RequestGroup, Workflow
from sites_app.models import Schedd, Site
from wms2.runtime.sql import sql_rows
from wms2.web.addresses import address

#: Of one kind; whether there are more is said.
MOST = 6
LONGEST = 700
#: Behind all texts that begin with another, in the order of the collation ``C``.
_BEHIND = "\U0010ffff"
_CLUSTER = re.compile(r"(\d{1,18})(\.\d{0,9})?")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,12})?", re.IGNORECASE)

#: The next value behind each, from an index alone: as many steps as values are shown, whatever the rows.
_VALUES = """
WITH RECURSIVE found(value, number) AS (
  (SELECT {column} COLLATE "C", 1 FROM {table} WHERE {column} COLLATE "C" >= %(first)s AND {column} COLLATE "C" < %(behind)s
   ORDER BY {column} COLLATE "C" LIMIT 1)
  UNION ALL
  SELECT (SELECT {column} COLLATE "C" FROM {table} WHERE {column} COLLATE "C" > found.value AND {column} COLLATE "C" < %(behind)s
          ORDER BY {column} COLLATE "C" LIMIT 1), number + 1
  FROM found WHERE value IS NOT NULL AND number <= %(most)s
) SELECT value FROM found WHERE value IS NOT NULL
"""


class Hit(NamedTuple):
    """One thing. ``about``: how it is connected with what was asked for, if not by its name. ``whole``: it is what was asked for,
    not only the beginning of it."""

    name: str
    about: str
    url: str
    whole: bool


class Group(NamedTuple):
    """Hits of one kind. ``more``: others are not shown."""

    kind: str
    hits: Sequence[Hit]
    more: bool


class Found(NamedTuple):
    """What was found, by kind, and among what it was looked for, in words."""

    asked: str
    groups: Sequence[Group]
    looked_for: Sequence[str]

    @property
    def only(self) -> Hit | None:
        """The one page that was asked for: the only one whose whole name it is, else the only one found."""
        hits = [hit for group in self.groups for hit in group.hits]
        whole = {hit.url: hit for hit in hits if hit.whole} or {hit.url: hit for hit in hits}
        return next(iter(whole.values())) if len(whole) == 1 else None


class _LookUp(NamedTuple):
    kind: str
    looked_for: str
    find: Callable[[str], list[Hit]]


def search(text: str) -> Found:
    """At most seven statements. Raises ValueError: it is too long, or has characters that no name has."""
    asked = text.strip()
    if "\0" in asked or len(asked) > LONGEST:
        raise ValueError(f"at most {LONGEST} characters, none of them NUL")
    looked = _looked_for(asked) if asked else ()
    groups = []
    seen: set[str] = set()
    for each in looked:
        hits = [hit for hit in each.find(asked) if hit.url not in seen]
        seen |= {hit.url for hit in hits}
        if hits:
            groups.append(Group(each.kind, hits[:MOST], len(hits) > MOST))
    return Found(asked, groups, [each.looked_for for each in looked])


def _looked_for(asked: str) -> Sequence[_LookUp]:
    """The kinds that a text of this form may be of."""
    if asked.startswith("/store/"):
        return _PATHS
    if asked.startswith("/"):
        return _BLOCKS if "#" in asked else _DATASETS
    if _CLUSTER.fullmatch(asked):
        return (*_NUMBERS, _DAG) if _ID.fullmatch(asked) else _NUMBERS
    if _ID.fullmatch(asked):
        return _WHOLE_IDS if len(asked) == len(str(uuid.UUID(int=0))) else (*_NAMES, _DAG)
    return _NAMES


def _beginning(rows: QuerySet[Any], column: str, asked: str) -> list[Any]:
    """Rows by the beginning of a column that has an index in the collation ``C``, in its order."""
    ordered = rows.alias(found=Collate(column, "C")).filter(found__gte=asked, found__lt=asked + _BEHIND).order_by("found")
    return list(ordered[: MOST + 1])


def _values(model: type[Model], column: str, asked: str) -> list[str]:
    """The different values that begin with a text."""
    sql = _VALUES.format(table=model._meta.db_table, column=column)
    return [value for (value,) in sql_rows(sql, {"first": asked, "behind": asked + _BEHIND, "most": MOST})]


def _request_hit(name: str, about: str, whole: bool) -> Hit:
    return Hit(name, about, address("request-page", name), whole)


def _requests_by(column: str, asked: str) -> list[Hit]:
    rows = _beginning(Request.objects.only("request_name", "prep_id", column), column, asked)
    abouts = {"input_dataset": "reads {0.input_dataset}"}
    return [
        _request_hit(row.request_name, abouts.get(column, "{0.prep_id}").format(row), getattr(row, column) == asked)
        for row in rows
    ]


def _campaigns(asked: str) -> list[Hit]:
    return [
        Hit(name, "", address("campaign-page", name) or address("board", campaign=name), name == asked)
        for name in _values(Request, "campaign", asked)
    ]


def _groups(asked: str) -> list[Hit]:
    rows = RequestGroup.objects.filter(name__startswith=asked).only("name").order_by()[: MOST + 1]
    return [Hit(row.name, "", row.get_absolute_url(), row.name == asked) for row in rows]


def _sites(asked: str) -> list[Hit]:
    rows = Site.objects.filter(Q(name__icontains=asked) | Q(rses__rse__iexact=asked)).distinct().only("name").order_by("name")
    return [Hit(row.name, "", _page("site-page", row, row.name), row.name.lower() == asked.lower()) for row in rows[: MOST + 1]]


def _schedds(asked: str) -> list[Hit]:
    rows = Schedd.objects.filter(name__icontains=asked).order_by("name")[: MOST + 1]
    return [
        Hit(row.name, f"pool {row.pool_id}", _page("schedd-page", row, row.name), row.name.lower() == asked.lower())
        for row in rows
    ]


def _output_datasets(asked: str) -> list[Hit]:
    rows = _beginning(OutputDataset.objects.select_related("workflow").only("name", "workflow__request_id"), "name", asked)
    return [
        Hit(
            row.name, f"written by {row.workflow.request_id}",
            address("dataset-page", name=row.name) or address("request-page", row.workflow.request_id), row.name == asked,
        )
        for row in rows
    ]  # fmt: skip


def _blocks(asked: str) -> list[Hit]:
    rows = ProcessingBlock.objects.select_related("workflow").only("dbs_block_name", "workflow__request_id")
    return [_block_hit(row, row.dbs_block_name, row.dbs_block_name == asked) for row in _beginning(rows, "dbs_block_name", asked)]


def _readers_of_block(asked: str) -> list[Hit]:
    dataset = asked.partition("#")[0]
    rows = Request.objects.alias(found=Collate("input_dataset", "C")).filter(found=dataset).only("request_name").order_by()
    return [_request_hit(row.request_name, f"reads {dataset}", False) for row in rows[: MOST + 1]]


def _output_files(asked: str) -> list[Hit]:
    rows = OutputFile.objects.filter(lfn=asked).select_related("block__workflow")
    return [_block_hit(row.block, f"block {row.block.dbs_block_name}", True) for row in rows.only(*_FILE)]


def _input_files(asked: str) -> list[Hit]:
    rows = InputFile.objects.filter(lfn=asked).select_related("workflow").only("lfn", "workflow__request_id")[: MOST + 1]
    return [_request_hit(row.workflow.request_id, "reads it", True) for row in rows]


def _clusters(asked: str) -> list[Hit]:
    cluster = asked.partition(".")[0]
    rows = DAG.objects.filter(dagman_cluster_id=cluster).exclude(dagman_cluster_id="").order_by()
    shown = rows.select_related("workflow").only(*_DAG_SHOWN)[: MOST + 1]
    return [_dag_hit(row, f"DAGMan {cluster} at {row.schedd_name}", True) for row in shown]


def _site_jobs(asked: str) -> list[Hit]:
    rows = SiteJob.objects.filter(cluster=asked.partition(".")[0]).exclude(cluster="").only("site", "purpose").order_by()
    return [
        Hit(f"{row.get_purpose_display()} at {row.site}", "", address("admin:dags_app_sitejob_change", row.pk), True)
        for row in rows[: MOST + 1]
    ]


def _failed_jobs(asked: str) -> list[Hit]:
    first = asked if "." in asked else f"{asked}."
    rows = FailureSample.objects.select_related("dag__workflow").only("job_id", "node", *(f"dag__{name}" for name in _DAG_SHOWN))
    return [_dag_hit(row.dag, f"job {row.job_id}, {row.node}", True) for row in _beginning(rows, "job_id", first)]


def _dags(asked: str) -> list[Hit]:
    """By the beginning of an id, too: lists show its first characters."""
    low, high = (uuid.UUID(f"{asked.replace('-', ''):{fill}<32}") for fill in "0f")
    rows = DAG.objects.filter(pk__gte=low, pk__lte=high).select_related("workflow").only(*_DAG_SHOWN).order_by("pk")
    return [_dag_hit(row, "", str(row.pk) == asked.lower()) for row in rows[: MOST + 1]]


def _requests_by_id(asked: str) -> list[Hit]:
    requests = Request.objects.filter(pk=asked).order_by().values_list("request_name", flat=True)
    names: Iterable[Any] = chain(requests, Workflow.objects.filter(pk=asked).order_by().values_list("request_id", flat=True))
    return [_request_hit(name, "", True) for name in names]


def _blocks_by_id(asked: str) -> list[Hit]:
    rows = ProcessingBlock.objects.filter(pk=asked).select_related("workflow").only("dbs_block_name", "workflow__request_id")
    return [_block_hit(row, row.dbs_block_name, True) for row in rows]


def _page(name: str, row: Any, *args: Any) -> str:
    """Its own page, else the admin's."""
    return address(name, *args) or address(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", row.pk)


def _block_hit(block: Any, name: str, whole: bool) -> Hit:
    url = address("block-page", block.pk) or address("request-page", block.workflow.request_id)
    return Hit(name, f"of {block.workflow.request_id}", url, whole)


def _dag_hit(dag: Any, about: str, whole: bool) -> Hit:
    url = address("dag-page", dag.pk) or address("request-page", dag.workflow.request_id)
    return Hit(str(dag.pk), f"{about} of {dag.workflow.request_id}".lstrip(), url, whole)


_DAG_SHOWN = ("schedd_name", "workflow__request_id")
_FILE = ("lfn", "block__dbs_block_name", "block__workflow__request_id")
_DAG = _LookUp("DAGs", "a DAG whose id begins with it", _dags)
_REQUESTS = _LookUp("Requests", "a request whose name begins with it", partial(_requests_by, "request_name"))
_PREP_IDS = _LookUp("Requests by prep id", "a prep id that begins with it", partial(_requests_by, "prep_id"))
_NAMES = (
    _REQUESTS,
    _PREP_IDS,
    _LookUp("Campaigns", "a campaign that begins with it", _campaigns),
    _LookUp("Groups", "a group of requests that begins with it", _groups),
    _LookUp("Sites", "a site with it in its name, or with an RSE of that name", _sites),
    _LookUp("Schedds", "a schedd with it in its name", _schedds),
)
_NUMBERS = (
    _LookUp("DAGs by cluster", "a DAGMan job with that cluster id", _clusters),
    _LookUp("DAGs by a failed job", "a failed job with that id, as far as they are kept", _failed_jobs),
    _LookUp("Jobs at sites", "a job of ours at a site with that cluster id", _site_jobs),
    _REQUESTS,
    _PREP_IDS,
)
_WHOLE_IDS = (
    _LookUp("DAGs", "a DAG with that id", _dags),
    _LookUp("Requests", "a request or workflow with that id", _requests_by_id),
    _LookUp("Blocks", "a block with that id", _blocks_by_id),
)
_DATASETS = (
    _LookUp("Output datasets", "an output dataset that begins with it", _output_datasets),
    _LookUp("Requests by their input", "an input dataset that begins with it", partial(_requests_by, "input_dataset")),
)
_BLOCKS = (
    _LookUp("Blocks", "an output block that begins with it", _blocks),
    _LookUp("Requests by their input", "a request that reads this block's dataset", _readers_of_block),
)
_PATHS = (
    _LookUp("Output files", "an output file with that LFN", _output_files),
    _LookUp("Requests by a file of their input", "an input file with that LFN", _input_files),
)
