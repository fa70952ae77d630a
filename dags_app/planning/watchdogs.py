"""Jobs that never end: lines of the submit files by which HTCondor itself catches them. Pure text.

A job that runs too long, or runs without using its CPU, is put on hold with a reason that begins with ``WMS2:``; a job that is
on hold, for this or any other reason but a person's, is removed, so that DAGMan goes on and the POST script sees why. The
failure rules know these reasons (``dags_app/data/failure_rules.json``): changing a text here needs the rule changed with it.
Only attributes that the schedd and the shadow keep themselves are read.
"""

from __future__ import annotations

#: What the failure rules look for at the beginning of a hold reason.
RAN_TOO_LONG = "WMS2: ran longer than"
NO_CPU = "WMS2: no CPU used"

#: A job that uses less than this part of one core over its whole life so far does nothing.
CPU_SHARE = 0.01

#: HoldReasonCode of a hold by a person (1) and by ``periodic_hold`` (3).
_BY_A_PERSON, _BY_PERIODIC_HOLD = 1, 3
_RUNNING, _HELD = 2, 5

_RUN_SECONDS = "(time() - JobCurrentStartDate)"
_CPU_SECONDS = "((RemoteUserCpu ?: 0) + (RemoteSysCpu ?: 0))"


def watchdog_lines(*, max_wall_seconds: int, no_cpu_seconds: int, held_seconds: int) -> str:
    """The lines of one submit file.

    Args:
        max_wall_seconds: longest run of any job.
        no_cpu_seconds: how long a job may run before it must have used CPU.
        held_seconds: how long a job may be on hold by anything but a person; somebody may want to look at it.
    """
    too_long = f"{_RUN_SECONDS} > {int(max_wall_seconds)}"
    no_cpu = f"{_RUN_SECONDS} > {int(no_cpu_seconds)} && {_CPU_SECONDS} < {CPU_SHARE} * {_RUN_SECONDS}"
    reasons = f'"{RAN_TOO_LONG} {int(max_wall_seconds)} s", "{NO_CPU} in {int(no_cpu_seconds)} s"'
    waited = f"(HoldReasonCode == {_BY_PERIODIC_HOLD} || time() - EnteredCurrentStatus > {int(held_seconds)})"
    return f"""\
periodic_hold = JobStatus == {_RUNNING} && ({too_long} || ({no_cpu}))
periodic_hold_reason = ifThenElse({too_long}, {reasons})
periodic_remove = JobStatus == {_HELD} && HoldReasonCode =!= {_BY_A_PERSON} && {waited}
"""
