"""The DAGMan jobs that the schedd has and had, asked of the schedd itself with HTCondor's own bindings."""

from __future__ import annotations

import htcondor2

from deploy.demo.facts import CondorJob

_PROJECTION = ["ClusterId", "WMS2_DagID", "JobStatus", "ExitCode"]


def outer_dagmans(collector: str, schedd_name: str, instance: str, token_dir: str) -> tuple[CondorJob, ...]:
    """All outer DAGMan jobs of an instance, in the queue and in the history.

    Raises:
        htcondor2.HTCondorException: the collector or the schedd does not answer.
    """
    if token_dir:
        htcondor2.param["SEC_TOKEN_DIRECTORY"] = token_dir
        htcondor2.param["SEC_CLIENT_AUTHENTICATION_METHODS"] = "IDTOKENS"
    location = htcondor2.Collector(collector).locate(htcondor2.DaemonType.Schedd, schedd_name)
    if location is None:
        raise htcondor2.HTCondorException(f"the collector {collector} knows no schedd {schedd_name}")
    schedd = htcondor2.Schedd(location)
    constraint = f'JobUniverse == 7 && DAGManJobId =?= undefined && WMS2_Instance =?= "{instance}"'
    ads = [*schedd.query(constraint, _PROJECTION), *schedd.history(constraint, _PROJECTION, -1)]
    jobs = [CondorJob(ad["ClusterId"], ad.get("WMS2_DagID", ""), ad["JobStatus"], ad.get("ExitCode")) for ad in ads]
    return tuple(sorted(jobs, key=lambda job: job.cluster))
