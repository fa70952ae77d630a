"""Exit codes of payload jobs and of attempts, and the one error that carries them. Owns the numbers, not what is done about them.

CMS's own list is used where it has a code; the 9500x are WMS2's. A process only hands 8 bits of its code to HTCondor, so
the code that counts stands in the job report (docs/design/model.md, Exit codes).
"""

from __future__ import annotations

import re

SUCCESS = 0

# CMS's codes
CONFIG_NOT_FOUND = 7001
CONFIG_UNREADABLE = 7002
FILE_OPEN_FAILED = 8020
FILE_READ_FAILED = 8021
ROOT_FAILED = 8022
FALLBACK_OPEN_FAILED = 8028
EXECUTABLE_NOT_FOUND = 50110
NO_FRAMEWORK_REPORT = 50115
EXIT_CODE_UNKNOWN = 50116
CMSSW_SETUP_FAILED = 50513
OVER_MEMORY = 50660
OVER_WALL_TIME = 50664
TERMINATED = 50669
OUTPUT_NOT_FOUND = 60302
STAGE_OUT_FAILED = 60311
STAGE_OUT_TOO_LONG = 60317
OUTPUT_NOT_REPORTED = 60450
DQM_UPLOAD_FAILED = 70318
NOT_RUN_AFTER_FAILURE = 99108
REPORT_LOST = 99303
REMOVED = 99400
REPORT_EMPTY = 99998
REPORT_UNUSABLE = 99999

# WMS2's codes
INVALID_DOCUMENT = 95001  # job.json, unit.json, merge_input.json or the sandbox cannot be used as they are
PROCESSED_DIFFERS = 95002  # the job ended well but did not read or generate exactly what it was given
INPUT_SKIPPED = 95003  # cmsRun skipped an input file and ended well
MERGE_FAILED = 95004  # the merge command failed
MERGE_DIFFERS = 95005  # the merged file does not hold what its inputs held
STORAGE_UNUSABLE = 95006  # the site's storage description is missing or has nothing this payload can write to
CLEANUP_REFUSED = 95007  # merged output is not where the manifest says, so nothing was removed
UNEXPECTED = 95008  # an error the payload has no name for: a full scratch disk, or a defect of its own
CREDENTIAL_UNUSABLE = 95009  # the job's token or proxy did not come with it, or ends before the job may
NOT_SUBMITTED = 95010  # DAGMan could not submit the job
MANIFEST_REFUSED = 95011  # the merge job ended well, but the manifest is not of this job
ENDINGS_DIFFER = 95012  # the report says 0, the process ended with something else
LANDING_FAILED = 95013  # the landing job of a unit did not end well
HELD = 95100  # plus HTCondor's HoldReasonCode: the job was on hold and then removed

#: Codes of cmsRun that say of a file only that it was not read: why, its storage says.
UNREAD = frozenset({FILE_OPEN_FAILED, FILE_READ_FAILED, ROOT_FAILED, FALLBACK_OPEN_FAILED, INPUT_SKIPPED})

#: What is left of CMS's codes for input files that could not be opened or read in a process's exit code.
UNREADABLE_8_BITS = {code & 0xFF: code for code in (FILE_OPEN_FAILED, FILE_READ_FAILED, FALLBACK_OPEN_FAILED)}

#: A process that a signal ended has this plus the signal's number, as shells count.
SIGNAL_BASE = 128
_SIGNALS = 64

#: Exit codes of DAGMan's POST script; rendered into the DAG (error-handling 2.2, 8.2; docs/design/model.md, Exit codes).
POST_DONE = 0
POST_RETRY = 1
POST_PERMANENT = 42
POST_ABORT_DAG = 43
POST_CALL_AGAIN = 44


class PayloadError(Exception):
    """A failure that the payload understands: ``code`` goes into the report, ``message`` says what, where and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def exit_status(code: int) -> int:
    """The 8-bit process status for a report code: its low byte, but never 0 for a failure."""
    return 0 if code == SUCCESS else code & 0xFF or 1


#: How a job that could write no report ends its output, from ``launch.sh`` or the command line: code and message.
LAST_WORDS = "wms2_payload: exit code {}: {}"
LAST_WORDS_READ = re.compile("^" + LAST_WORDS.format(r"(\d{1,6})", "(.*)"), re.MULTILINE | re.DOTALL)


def of_process(code: int) -> int:
    """A process's exit code as shells count it: -n, as Python and DAGMan write signal n, is 128 + n."""
    return SIGNAL_BASE - code if -_SIGNALS <= code < 0 else code
