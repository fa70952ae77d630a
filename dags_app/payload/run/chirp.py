"""Numbers that the job's ad gets while the job runs, by HTCondor's Chirp: monitoring reads them there.

Nothing depends on it. Where the slot gives no Chirp, or it fails, the ad lacks them, and the job goes on.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

#: By which monitoring knows the exit code of CMS's jobs; a process's own has 8 bits.
EXIT_CODE = "Chirp_WMCore_cmsRun_ExitCode"
_SECONDS = 5.0


def set_number(name: str, number: int) -> bool:
    """Whether the slot has taken it; the schedd learns of it with the next update of the job, or with its end."""
    try:
        host, port, cookie = Path(os.environ["_CONDOR_CHIRP_CONFIG"]).read_text(encoding="ascii").split()[:3]
        with socket.create_connection((host, int(port)), _SECONDS) as server, server.makefile("rw", encoding="ascii") as stream:
            for line in (f"cookie {cookie}", f"set_job_attr_delayed {name} {number:d}"):
                stream.write(f"{line}\n")
                stream.flush()
                if int(stream.readline()) != 0:
                    return False
        return True
    except (KeyError, OSError, ValueError):
        return False
