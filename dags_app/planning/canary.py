"""The canary: a small real DAG that shows whether a schedd runs ours, at both levels and at a site (ADR 0026). Pure.

It has no physics output: one ``SUBDAG EXTERNAL`` with one short job, which says its word at whichever of the sites has a slot,
and some that do nothing, like the landings of a round, of which none need run.
Before it the payload runs once as a script, which the host's Python may be too old for.
"""

from __future__ import annotations

from dags_app.payload.contract import layout
from dags_app.planning.cms_ads import plain, site_list
from dags_app.planning.specs import AccountingSpec
from dags_app.planning.submitfiles import SiteSlot, site_job_submit

OUTER, ANSWER = "canary.dag", "canary.out"
#: DAGMan's log of the inner level, which has where each job ran.
NODES_LOG = "inner.dag.nodes.log"
#: Short jobs at once, as a round's landings are: where they run shows whether the negotiator spreads them.
LANDINGS = 12
_LANDING_SECONDS = 600
#: To be put beside the files.
PAYLOAD = layout.PAYLOAD.rpartition("/")[2]
_MINUTES = 10


def canary_files(key: str, instance: str, sites: frozenset[str], *, accounting: AccountingSpec) -> dict[str, str]:
    """Its files by name. ``key`` is its DAG id, and what the job says.

    Raises:
        ValueError: no site, or a name that cannot stand in such files.
    """
    stamps = {"WMS2_Instance": plain(instance, "instance"), "WMS2_DagID": plain(key, "key"), "WMS2_Request": ""}
    of_dag = "".join(f'SET_JOB_ATTR {name} = "{value}"\n' for name, value in stamps.items())
    job = site_job_submit(site_list(sites), SiteSlot(_MINUTES), accounting=accounting)
    own = {"executable": "canary.sh", "arguments": f'"{key}"', "output": ANSWER, "transfer_input_files": None}
    lines = [line for line in job.splitlines() if line.partition(" = ")[0] not in own]
    lines += [f"{name} = {value}" for name, value in own.items() if value]
    lines += [f'My.{name} = "{value}"' for name, value in stamps.items()]
    landing = {"executable": "/bin/true", "output": None, "transfer_input_files": None, "arguments": None}
    landing |= {"transfer_executable": "False", "ulog_execute_attrs": layout.SITE_ATTRIBUTE, "log": "spread.log"}
    spread = [line for line in lines if line.partition(" = ")[0] not in (*landing, "periodic_remove")]
    spread += [f"{name} = {value}" for name, value in landing.items() if value]
    spread += [f"periodic_remove = time() - QDate > {_LANDING_SECONDS}", f"queue {LANDINGS}", ""]
    return {
        OUTER: f"{of_dag}SUBDAG EXTERNAL canary inner.dag\nSCRIPT PRE canary ./{PAYLOAD} --help\n",
        "inner.dag": f"{of_dag}JOB job canary.sub\nJOB spread spread.sub\nSCRIPT POST spread /bin/true\n",
        "spread.sub": "\n".join(spread),
        "canary.sub": "\n".join([*lines, "queue", ""]),
        "canary.sh": '#!/bin/sh\necho "$1"\n',
    }
