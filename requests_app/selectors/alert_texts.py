"""What each alert says and what to do about it, in a sentence each; at length in docs/runbook.md, Alerts."""

from __future__ import annotations

from typing import NamedTuple

from requests_app.models import Severity
from wms2.conf import conf

#: Of those that evaluations raise.
_OF_REQUESTS: dict[str, tuple[str, str]] = {
    "dark_files": (
        "Merged files of it are not in Rucio for so long that CMS's consistency checks will delete them as dark.",
        "Have their registration go on: repair and retry it, or release the request; else discard the files knowingly.",
    ),
    "units_unaccounted": ("Work units are done, their manifests are missing or wrong.", "Look at the units' merge_output.json."),
    "sites_unavailable": ("Some of its work units have no site left.", "Lift a ban, or enable a site, and stop it to resume."),
    "pileup_elsewhere": (
        "The pileup has left all sites of some of its work units.",
        "Have it placed there again and stop the request to resume; or stop it when the others are done: they are planned anew.",
    ),
    "all_failing": ("No job of its DAG has done well yet.", "Look at its errors: one cause? Hold it, or let the rescues go on."),
    "site_starts_nothing": (
        "A site has started none of its jobs, while others did.",
        "Units of which nothing has begun leave by themselves, sooner by Leave sites of the DAG; ban the site, or ask it why.",
    ),
    "dagman_held": ("Its DAGMan job, or a work unit's, is held: that does not go on.", "Remove the cause, then release the DAG."),
    "ledger_violation": ("The account of its work does not hold.", "It is being stopped; report it."),
    "input_unreadable": ("Whether its input has grown cannot be read.", "See whether the dataset exists and may be read."),
    "unmerged_unprotected": (
        "MSUnmerged may delete its unmerged files: no active request in ReqMgr2 has their directories.",
        "See in ReqMgr2 whether the request is there and active; else have its directories left out there.",
    ),
    "input_missing": ("Input files have had no site for long.", "Have their replicas made or repaired, or leave them out."),
    "lumis_refused": ("Some lumis can be in no job.", "See which and why; the rest is done without them."),
    "schedd_unreachable": ("Its schedd is silent.", "Bring the schedd back; do not abort because of it."),
    "queue_suspected": (
        "Its schedd answers and knows nothing of its DAG.",
        "Find out what happened at the schedd; if its queue is lost, confirm that on the schedd's page.",
    ),
    "dag_returned": ("A DAG of it that had been given up was in a queue again.", "It is being removed; see why it came back."),
    "outcome_unknown": (
        "Its DAG left the queue, and nothing proves how it ended.",
        "Look at history and files of the DAG; if they cannot show it, hold it, then release.",
    ),
    "stop_unanswered": ("The stop cannot be proved: the schedd does not answer.", "Bring the schedd back."),
    "numbers_abandoned": (
        "Work units that had not failed were given up, because no rescue can be run; as many events are made anew.",
        "See why: pileup that has moved needs nothing; find out why DAGMan left no rescue file.",
    ),
    "effect_refused": ("DBS or Rucio refused a registration.", "Repair the cause, then retry it, or discard it."),
    "effect_dead": ("A registration failed for too long.", "Repair the cause, then retry it, or discard it."),
    "extension_waits": (
        "Its datasets are short of events, and it is not extended now.",
        "Look at its errors; if it is enough, complete it early, or hold it and release it with another pass fraction.",
    ),
    "leftovers_stay": ("Unmerged files of it could not be removed.", "See which and why; the cleaner goes on trying."),
    "cases_wait": ("Integrity cases of it wait for a decision.", "Decide them on the page Cases."),
    "forgotten": ("There was something to do, and nothing woke it; it goes on now.", "Report it: a defect of WMS2."),
    "slow_queued": ("It has been queued for very long.", "See what it waits for."),
    "slow_dispatch": ("No job of its DAG has begun for very long.", "See why its jobs match no slot."),
    "slow_active": ("It has been active for very long.", "See whether its work units still advance."),
    "slow_cleaning": ("It has been cleaned for very long.", "Repair what it waits for, or clean it again and accept the rest."),
    "slow_stopping": ("It has been stopping for very long.", "See whether its schedd answers."),
    "slow_validating_outputs": (
        "Its outputs are not validated for very long.",
        "See what it waits for: a service, a site, a job.",
    ),
    "slow_validated_outputs": ("It has waited for very long with its outputs validated.", "See what it waits for."),
    "slow_removing_files": (
        "Its unmerged files are not removed for very long.",
        "See at which site, and whether jobs run there.",
    ),
}


class Condition(NamedTuple):
    """A condition that the leader's cycle looks at: how soon a person is wanted, what it says, what to do."""

    severity: Severity
    means: str
    todo: str


_C, _W, _I = Severity.CRITICAL, Severity.WARNING, Severity.INFO
CONDITIONS: dict[str, Condition] = {
    "request_held": Condition(_W, "A request is held.", "Read why on its page; then release it, or abort it."),
    "held_by_operator": Condition(_I, "An operator holds a request.", "Ask who held it; then release it."),
    "drift_unsettled": Condition(_W, "DBS or Rucio hold something else than WMS2 believes.", "Repair or accept each difference."),
    "cases_new": Condition(_W, "Integrity cases wait for a decision.", "Decide them on the page Cases."),
    "schedd_silent": Condition(_W, "A schedd does not answer.", "Bring it back; abort nothing because of it."),
    "schedd_degraded": Condition(_W, "Something is wrong with a schedd; it gets no new DAG.", "Read the reason at the schedd."),
    "schedd_strays": Condition(
        _W, "A schedd has jobs of ours that no live DAG knows.", "Find out whose they are; adopt or remove."
    ),
    "site_closed": Condition(
        _I, "No new work goes to a site.", "See who closed it, why and until when; open it when it is well."
    ),
    "systemic_trouble": Condition(_W, "Schedds or sites turned bad together.", "Look for a cause that they share."),
    "new_work_held": Condition(_C, "Schedds or sites turned bad together; nothing new is submitted.", "Look for their cause."),
    "new_work_stopped": Condition(_I, "An operator has switched new work off.", "Ask who did; allow it when that is over."),
    "service_closed": Condition(_W, "The service is overloaded; nothing new starts.", "See which signal is at its limit."),
    "reqmgr2_silent": Condition(
        _W, "ReqMgr2 was not polled with success for long.", "See whether it answers, and our certificate."
    ),
    "reqmgr2_problem": Condition(_W, "A request of our team cannot be taken or followed.", "Correct or reject it in ReqMgr2."),
    "rucio_account": Condition(_W, "Rucio does not let our account do what it has to.", "Have its attributes and limits set."),
    "workers_missing": Condition(_C, "A worker pool takes no tasks.", "Start a worker, or resume the pool."),
    "dead_letters": Condition(_W, "Something is at an end of its retries.", "Put right what it says; retry or discard it."),
    "credential_ends": Condition(_C, "A credential ends soon, or cannot be used.", "Renew it; the new file counts at once."),
    "watcher_without_address": Condition(
        _I, "A user watches requests and has no mail address; nothing is sent.", "Give the user one, or have them stop watching."
    ),
    "channel_failing": Condition(_W, "Alerts cannot be sent to a channel; they wait.", "See its last error; change the channel."),
}


class AlertText(NamedTuple):
    """What an alert says, and what to do."""

    means: str
    todo: str


def words_of(code: str) -> AlertText:
    """Of a code; of one that only another release knows its name."""
    if code in CONDITIONS:
        return AlertText(CONDITIONS[code].means, CONDITIONS[code].todo)
    if code in _OF_REQUESTS:
        return AlertText(*_OF_REQUESTS[code])
    means = f"Stuck: {code.removeprefix('stuck_').replace('_', ' ')}." if code.startswith("stuck_") else code
    return AlertText(means, "See its last error.")


def runbook_url(code: str) -> str:
    """Where the runbook says more; empty where no address of it is set."""
    return f"{conf().runbook_url}#{code}" if conf().runbook_url else ""
