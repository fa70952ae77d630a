"""What each setting means, in words. ``configuration`` puts them together with the types and defaults of ``wms2.conf``."""

from __future__ import annotations

from wms2.conf import Conf


def limit(name: str) -> str:
    """What a setting says of itself, because operators who may change it see that as well."""
    return f"{Conf.model_fields[name].description}."


#: Groups of fields of ``wms2.conf.Conf`` in the order of the page: heading -> {field: explanation}.
SETTINGS: dict[str, dict[str, str]] = {
    "Identity and places": {
        "instance": "Name of this installation. Stamped on every job and kept in the database; a process with another name"
        " refuses to work on it. Letters, digits, `.`, `_`, `-`; at most 63 characters.",
        "environment": "`demo`, `test` or `production`. Kept in the database like `instance`. `production` switches TLS on.",
        "state_dir": "Absolute path of the directory for everything that this installation writes. Not below `/tmp`.",
        "submit_root": "Where the directories of DAGs lie: on the schedd's file system, writable for the owner of the jobs, not"
        " below `/tmp`, where DAGMan refuses to keep its logs.",
    },
    "Outside services": {
        "reqmgr2_url": "Base of ReqMgr2's data service, `…/reqmgr2/data`.",
        "team": "Our team in ReqMgr2: what `Team` says in documents that this installation runs. Those of other teams are"
        " refused, whatever way they come. Empty: the team is not looked at.",
        "other_teams": "Whether documents of other teams may be imported by hand all the same, as in the demo. WMCore may run"
        " them too: never in production.",
        "reqmgr2_follow": "Whether staged requests of our team are taken out of ReqMgr2, and what others do there to requests"
        " that came from there is done here (abort, force-complete, priority, site lists). Needs `team`; see"
        " [coexistence](coexistence.md).",
        "reqmgr2_report": "Whether ReqMgr2 is told where requests stand that came from there, how much work they have, and gets a"
        " clone when one is restarted. Our certificate needs the role for it.",
        "reqmgr2_take_staging": "Whether requests of our team that are `staging` are set to `staged` and `acquired` in one go as"
        " soon as their transfer document says what MSMonitor would go by: no transfers, or each complete to the campaign's"
        " `PartialCopy`. WMCore's work queue hardly sees them `staged` then. Needs `reqmgr2_follow`.",
        "reqmgr2_poll_seconds": "Pause between two polls of ReqMgr2.",
        "wmstats_url": "Base of WMStats' data service, `…/wmstatsserver/data`. Where it is set, each request whose unmerged"
        " directories are not among its `protectedlfns` is alerted on (`unmerged_unprotected`): MSUnmerged may empty them. Empty:"
        " this is not looked at.",
        "configcache_url": "Replaces the `ConfigCacheUrl` of every document when set, e.g. by the simulator's.",
        "configcache_allowed_urls": "ConfigCaches that documents may name as `ConfigCacheUrl`, separated by commas: what comes"
        " from there is code that runs at every site. Others are refused. Empty: `/couchdb` at the host of ReqMgr2. In"
        " production all begin with `https://`.",
        "dbs_reader_url": "Base of the DBS reader, `…/dbs/prod/global/DBSReader`.",
        "dbs_writer_url": "Base of the DBS writer, `…/dbs/prod/global/DBSWriter`.",
        "dbs_tiers_with_digits": "Whether outputs may have data tiers with digits (`L1SCOUT`, `L1NANO`): true once the lexicon of"
        " that DBS takes datasets with such names. Input datasets may have them anyway.",
        "cric_url": "Base of CRIC.",
        "site_status_url": "Feed of the Site Status Board: a JSON list of objects with `name` (or `site`) and `prod_status` (or"
        " `status`): `enabled`, `drain`, `test` or `disabled`. Read every ten minutes as actor `ssb`; what an operator has"
        " decided of a site stands until *Follow SSB*. Empty: sites are enabled until an operator says otherwise.",
        "mspileup_url": "Base of MSPileup, `https://cmsweb.cern.ch/ms-pileup/data`: pileup is read only where it is kept on"
        " purpose, and of that what its `customName` holds. Empty: where rules in Rucio keep whole blocks on disk;"
        " every whole copy if no rule keeps any there.",
        "rucio_home": "Directory with `etc/rucio.cfg` for the Rucio client.",
        "rucio_account": "Rucio account that owns the rules.",
        "rucio_scope": "Scope of all datasets, blocks and files.",
        "x509_cert": "Client certificate or proxy for ReqMgr2, ConfigCache, DBS and CRIC, in PEM; empty for none. This and all"
        " other credentials are read at each use: a renewed file counts from the next call on.",
        "x509_key": "Its key, when it is in a file of its own.",
        "service_token": "File of a bearer token for the same services, which then have to be asked by https; empty for none.",
        "ca_path": "File or directory of certificate authorities; empty for the system's.",
        "releases_map": "CMS's list of releases, `/cvmfs/cms.cern.ch/releases.map`: jobs ask for the x86-64 level that it names.",
        "job_credential": "What jobs carry to storage: `none`, `proxy` (HTCondor's `x509userproxy`; commands find it by"
        " `X509_USER_PROXY`) or `token` (a file that goes with each job; commands find it by `BEARER_TOKEN_FILE`). A change"
        " counts for what is submitted from then on.",
        "job_credential_path": "Its file, absolute, at the schedds' hosts and here, readable for the jobs' owner alone.",
        "job_credential_margin_seconds": "No DAG is submitted whose jobs' credential ends sooner; requests wait in QUEUED and say"
        " so. A token has to be good for the wall time that the DAG's jobs ask for as well: HTCondor renews only proxies of jobs"
        " that run.",
        "job_credential_stop_seconds": "DAGs are stopped when their jobs' credential ends so soon, and go on from their rescue"
        " files when it has been renewed. At most the margin.",
        "credential_alert_seconds": "Credentials that end sooner are told under \"Needs you\", by `/readyz` and by `manage.py"
        " check`. The rule for Prometheus has 48 h of its own.",
        "schedd_name": "The schedd that DAGs are given to, by its name in the collector.",
        "collector": "The pool's collector, `host:port`.",
        "condor_token_dir": "Directory of IDTOKENs for the schedd; empty for the HTCondor configuration's own methods.",
        "accounting_group": "HTCondor's accounting group of all jobs, in CMS `production`; empty for none.",
        "accounting_group_user": "The user that the group's jobs are counted to, in CMS `cmsdataops`; empty for their owner.",
        "io_slots": "Merge and cleanup jobs ask for an I/O slot of their pilot (`Requestioslots`), as WMAgent's, and take no CPU"
        " slot. HTCondor then demands such slots of every machine: only where all sites run CMS's pilots.",
        "flower_url": "Where Flower shows the Celery workers. The pages link to it for superusers, since it asks for a login of"
        " its own; empty: there is no link.",
        "service_timeout_seconds": "Limit of one call to an outside service, for each try.",
        "database_lock_seconds": "A session waits so long for a row or lock of another one; then the step is put off to the next"
        " cycle, logged and counted.",
        "database_idle_seconds": "A transaction whose process does nothing for so long, e.g. because it is paused, is broken off,"
        " so that it holds up nobody.",
        "database_silent_seconds": "Both ends of a connection to the database give up a silent peer after this.",
        "max_clock_skew_seconds": "A worker, beat or `lifecycle_tick` whose host's clock differs more from the database's does"
        " not start, and `/readyz` says so. Leases, graces and expiries go by the database's clock all the same.",
        "submit_timeout_seconds": "Limit of one submission. When it is over, the outcome is unknown and is looked for.",
    },
    "Signing in": {
        "sign_in_failures_per_name": "So many wrong passwords for one user name from one address within `sign_in_window_seconds`;"
        " from then on nothing is judged until the window ends (429 with `Retry-After`). The right password in time begins anew.",
        "sign_in_failures_per_address": "The same for all names from one address, and for wrong tokens over REST. Right tokens"
        " never wait.",
        "sign_in_window_seconds": "Window of both numbers; it begins with the first failure and is as long as anybody waits.",
        "proxies_in_front": "Reverse proxies between the users and the web processes, each of which appends to"
        " `X-Forwarded-For`. With 0 the peer's address counts, and the header is anybody's word; behind a proxy all users then"
        " have one address.",
        "feed_readers": "Readers of the event feed (long polls, streams) that a process of the web server lets wait. Each keeps a"
        " thread, and a session of the database, beside the four threads for everything else; one more is told 503.",
    },
    "Rates and load": {
        "rate_limit_window_seconds": "Calls of one identity (a user; without one, an address) are counted in windows of so"
        " long, in the broker, for all web processes. Beyond the numbers below it is answered 429 with `Retry-After`.",
        "rate_limit_submit": "Imports within a window. 0, as for the others: no limit.",
        "rate_limit_read": "Reads, pages included. Health and metrics are not counted.",
        "rate_limit_act": "Changes: stop, abort, hold, release and all other verbs, the admin's included.",
        "rate_limit_streams": "Streams that are begun.",
        "web_threads": "Threads of each web process. When most of them are busy for some seconds, calls are refused with 503:"
        " listings of nodes and logs first, then reads, then what starts work; never what stops work, results and health.",
    },
    "Life cycle": {
        "cycle_seconds": "Pause between two cycles: schedds are asked, and steps that are repeated are repeated.",
        "poll_seconds": "Pause between two polls: requests are admitted, and those that are due are evaluated.",
        "sweep_seconds": "A request that was not evaluated for so long is looked at all the same; nothing should be found.",
        "lease_seconds": "Life of the leader's and of an evaluation's lease; whoever is silent for longer is replaced. The"
        " leader's is at least `service_timeout_seconds` and ten seconds: it may have to wait for a silent schedd.",
        "worker_heartbeat_seconds": "How often a worker tells of itself and reads what is wanted of it; after three times as"
        " long in silence it counts as dead.",
        "worker_missing_seconds": "A pool without a living worker for so long is an alert.",
        "timeout_submitted_seconds": "A request that is SUBMITTED for longer is held, with the last error as the reason.",
        "timeout_queued_seconds": limit("timeout_queued_seconds"),
        "timeout_planning_seconds": "A request that is PLANNING for longer is held, unless a submission may be under way.",
        "timeout_active_seconds": limit("timeout_active_seconds"),
        "timeout_dispatch_seconds": "An ACTIVE request of whose DAG no job has begun for so long raises an alert, until one has.",
        "timeout_stopping_seconds": "A request that is STOPPING for longer raises an alert, and goes on.",
        "timeout_resubmitting_seconds": "A request that is RESUBMITTING for longer is held.",
        "timeout_validating_seconds": "A request that is VALIDATING_OUTPUTS for longer raises an alert, and goes on.",
        "timeout_validated_seconds": "The same for VALIDATED_OUTPUTS: it is not extended, or waits for others.",
        "timeout_removing_seconds": "The same for REMOVING_FILES.",
        "timeout_cleaning_seconds": "A request that is CLEANING for longer raises an alert, and goes on.",
        "retry_after_failure_seconds": "First pause after a failed import, planning or submission; doubles each time.",
        "retry_after_failure_max_seconds": "Longest such pause.",
        "submit_unknown_grace_seconds": "After a submission without an answer, \"not in queue and history\" counts only when this"
        " and `submit_timeout_seconds` have passed.",
        "schedd_suspicion_seconds": "A schedd that is silent for longer raises an alert at the requests that run there, and"
        " an operator may confirm that it is lost. A DAG that its schedd does not know for longer is suspected lost.",
        "schedd_max_duty_cycle": "A schedd whose duty cycle (the share of its time that it works) is above this is *busy*: a new"
        " DAG goes there only when no other has room.",
        "schedd_stalled_seconds": "A schedd where jobs of ours run and none of ours has ended for so long, and for twice the time"
        " that the longest should take, is *degraded*: it gets no new DAG.",
        "systemic_window_seconds": "When more than half of the schedds, or of the sites where jobs are, turn bad within this,"
        " nothing new is submitted and no site is banned by itself, until that has been over for as long.",
        "overload_evaluations_seconds": "A request that is due and waits longer to be evaluated strains the service: what can"
        " wait is put off. Five times longer closes it: nothing new starts. So for each of the three.",
        "overload_effects_seconds": "The same for a registration that is due and waits to be tried.",
        "overload_database_seconds": "The same for what a question to the database that costs nothing takes.",
        "trouble_load_per_cpu": "Load average per CPU of the leader's host from which on limits by which others are judged"
        " (schedds, requests) are stretched, up to three times. 0: the load is not looked at.",
        "stray_look_seconds": "Pause between two looks into a schedd's queue for jobs of ours that no live DAG knows.",
    },
    "Admission": {
        "max_active_dags": limit("max_active_dags"),
        "max_dagman_slots_per_schedd": "DAGMan processes, outer and inner ones together, that a schedd may run; taken over when"
        " the schedd is first added, then kept in its row. Not more than the schedd's START_SCHEDULER_UNIVERSE allows; how many"
        " schedds that makes: the runbook, Pools and schedds.",
        "canary_seconds": "A schedd that is added runs a small DAG before it may be enabled; one that has not ended by then"
        " failed.",
        "submit_root_free_mb": "What the submit directory of a schedd must have left, in MiB, for the schedd to be enabled.",
        "idle_job_budget": limit("idle_job_budget"),
        "admission_high_watermark": limit("admission_high_watermark"),
        "admission_low_watermark": limit("admission_low_watermark"),
        "admission_aging_per_hour": limit("admission_aging_per_hour"),
    },
    "Planning": {
        "jobs_per_work_unit": limit("jobs_per_work_unit"),
        "block_target_bytes": limit("block_target_bytes"),
        "block_max_files": "A processing block with so many files takes no more and is registered in DBS. Of this and the"
        " document's `BlockCloseMaxFiles` the smaller counts; `BlockCloseMaxSize` counts so beside `block_target_bytes`.",
        "block_max_events": "The same for its events (`BlockCloseMaxEvents`).",
        "block_max_lumis": "The same for its lumis: CRAB takes no blocks with more than 100,000 for tasks by lumis.",
        "block_max_wait_seconds": "The same for the time since its first file (`BlockCloseMaxWaitTime`).",
        "max_nodes_per_dag": "Jobs of one DAG, of all roles; more work waits for a further round.",
        "max_work_units_per_dag": "Work units of one DAG.",
        "default_memory_per_core_mb": "Memory of a job that asks for less.",
        "max_memory_per_core_mb": "A request that needs more memory per core is refused.",
        "max_wall_seconds": "Longest run time of a job that is asked for; a job that runs longer is ended.",
        "adaptive_default": "Whether a request runs in rounds that are sized by what was measured when its import does not say.",
        "first_round_units": "Work units of an adaptive request's first round, which runs by the request's hints.",
        "work_units_per_round": limit("work_units_per_round"),
        "target_wall_seconds": "How long a job is to take where a round's splitting is sized by what was measured.",
        "memory_margin": "What jobs ask for beyond the memory that was measured, as a share of it.",
        "min_request_cpus": "Fewest cores that a sized job asks for.",
        "split_below": "A step that keeps less than this share of its cores busy runs as several processes side by side.",
        "overcommit_max": "Threads of a step's processes together, as a multiple of the job's cores; 1: no more than cores.",
        "sizing_min_jobs": "A step that fewer jobs have measured keeps the request's hints.",
        "max_jobs_per_work_unit": "Most processing jobs that a sized round merges together.",
        "pileup_cache_seconds": "For how long the files and places of a pileup dataset are used before DBS and Rucio are asked"
        " again; shared by all requests. 0: before every planning.",
        "pileup_min_fraction": "The part of a pileup dataset's files that a site must have on disk for jobs that mix it to go"
        " there.",
        "input_reread_seconds": "Pause between two readings of an input dataset that may still grow (`OpenRunningTimeout`).",
        "wait_for_full_units": "While an input dataset may still grow (`OpenRunningTimeout`), jobs that do not fill a work unit"
        " wait for more, so that merged files are not small. They are planned when the input is closed, or by *Flush*.",
        "input_locations_seconds": "Locations of input files that are older are read again before a round is planned; as long a"
        " request waits for files without a location before it looks again.",
        "input_missing_alert_seconds": "Input files that wait longer for a site to be read at raise the alert `input_missing`.",
        "unreadable_apart_seconds": "An input file that could not be read at the only site with it is tried again after this, and"
        " left out if it cannot be read then either; where two sites agree, at once.",
        "max_excluded_fraction": "The share of its wanted input files that a request may complete without, when they could not be"
        " read or not be split; above it the request is held (`excluded`). A request may have its own.",
        "generation_excess_factor": "Events planned in all, lost ones and extensions included, at most so many times the"
        " number to generate that follows from the document.",
        "pass_fractions": "Share of the events that a document asks for which is enough in DBS, as `TIER=share,...`; `*` is every"
        " tier that is not named, 1 without it. A generation that has fewer is extended; with input, so much of what the accepted"
        " manifests declare has to be there. DQMIO holds no events. A request may have its own (`pass_fraction` of a release).",
        "extend_max_failure_rate": "A request whose last round has a larger share of failed work units is not extended by"
        " itself.",
        "extend_max_queued": "While more requests are queued, none is extended.",
        "dag_max_merge_groups": limit("dag_max_merge_groups"),
        "dag_max_processing": "Processing jobs of one DAG in the queue at once, where its request has no limit of its own.",
        "dag_status_interval_seconds": "How often the outer DAGMan of a DAG writes its status file and its job ad.",
        "dag_log_scan_interval_seconds": "How often DAGMan looks at its jobs' event log; each node costs a few of these.",
        "retry_processing": "Retries of a processing job inside its DAG.",
        "retry_merge": "Retries of a merge job inside its DAG.",
        "cooloff_base_seconds": "Pause between two calls of a POST script that defers its retry.",
    },
    "Errors": {
        "error_hold_threshold": limit("error_hold_threshold"),
        "error_max_rescue_attempts": limit("error_max_rescue_attempts"),
        "alert_failed_attempts": "So many failed attempts of a DAG in which no job has done well yet are an alert.",
        "error_same_units": "So many work units that fail with one error, while nothing else ends, abort their DAG; 0: never.",
        "job_no_cpu_seconds": "A job that runs so long and has used less than 1 % of a core is ended.",
        "stage_out_pauses": "Seconds between the tries of a job to stage out a file to one volume, separated by commas, before it"
        " goes to the next, and of an upload to a DQM server; of DAGs planned from now on."
        " A worker node may have a variable of this name of its own, with spaces.",
        "job_max_starts": "A job that was started so often and evicted each time is removed; its unit goes elsewhere.",
        "job_idle_seconds": "A job that waits so long for the site of its work unit is removed; the unit lands elsewhere.",
        "unit_unbegun_seconds": "A work unit of which no job has begun at its site so long after it landed, while others of its"
        " DAG began elsewhere, lands at another site, once in each submission (alert `site_starts_nothing`); 0: never.",
        "job_held_seconds": "A job that HTCondor put on hold is removed after this, its node tried again; a person's hold stays.",
        "site_ban_duration_days": "Days that a ban of a site holds, when nobody says otherwise.",
        "site_ban_promotion_threshold": "A site that so many requests ban, each for itself, is banned for all.",
        "site_ban_min_failures": "Fewer failures than these never ban a site.",
        "site_ban_failure_ratio": "A site is banned for a request when more than this share of its attempts there failed for the"
        " site's sake.",
        "max_versions": "A request may be restarted until so many versions of it exist.",
        "superseded_grace_days": "Outputs that a completed new version has replaced are taken back after so many days, unless the"
        " request says at once; 0: only by hand.",
    },
    "Leftovers at sites": {
        "cleaner_enabled": "Whether files that nobody needs any more are removed at sites (runbook, Leftovers at sites). Off:"
        " no job is submitted for it, and those in the queue are removed.",
        "cleaner_off_sites": "Sites at which nothing is removed, separated by commas.",
        "cleaner_grace_days": "Since the end of a round, until what its units left is removed. Longer than any job runs: one that"
        " comes back late is then found too.",
        "cleaner_ended_grace_days": "The same since a request failed or was aborted, where that is later; a request whose cleanup"
        " policy is immediate does not wait for it.",
        "removal_tries": "A request that is REMOVING_FILES waits for so many tries at a site. What is left then is told and tried"
        " again later, and does not keep it from being COMPLETED.",
        "site_job_timeout_seconds": "A job at a site that has not ended so long after its submission is removed, and tried again."
        " What it knows of protected files is not believed for longer either.",
        "site_job_run_seconds": "A job at a site that has begun ends after so long; what it did not come to is another's.",
    },
    "Validation": {
        "storage_checks_enabled": "Whether the files of registered blocks are compared with the storage itself, by jobs at its"
        " site (runbook, Validation). Off: DBS and Rucio alone decide, and each block's evidence says so.",
        "storage_check_off_sites": "Sites whose storage is not looked at, separated by commas; the blocks' evidence says so.",
        "storage_checksum_fraction": "Share of these files whose Adler-32 is asked for too; a storage that does not tell it has"
        " them read whole. Which files is decided by their names. The others are compared by size.",
    },
    "DQM harvesting": {
        "harvest_enabled": "Whether DQM files of completed requests that ask for it are harvested (runbook, DQM harvesting). Off:"
        " no job is submitted for it, and those in the queue are removed; what is to be harvested waits.",
        "dqm_upload_url": "A DQM server that gets all uploads, whatever requests name; for installations of tests.",
        "dqm_upload_allowed_urls": "DQM servers that requests may name (`DQMUploadUrl`), with all that is below these addresses:"
        " jobs show them who they are. Separated by commas.",
        "harvest_memory_mb": "Memory of a harvesting job, where its request does not say (`HarvestingMemory`).",
        "harvest_run_seconds": "A harvesting job that has begun ends after so long, and is tried again.",
        "harvest_max_jobs": "Harvesting jobs in the queues at once; the others wait for their turn.",
        "harvest_max_attempts": "So many failed attempts, with pauses from 10 minutes to 6 hours, leave it to an operator.",
    },
    "Retention": {
        "keep_events_days": "Events of the feed go when they are older than so many days and their request has been at an end for"
        " as long; 0 keeps them for ever, here and below. Who reads the feed must not be further behind.",
        "keep_history_days": "The same for the history of DAGs, and for the samples of failures with the ends of their logs. By"
        " age alone: changes of schedds' health and queues, and systemic alerts, bans and reconciliations that have ended.",
        "keep_answers_hours": "Answers to calls of the REST interface with an `Idempotency-Key` are repeated for so long.",
        "keep_audit_days": "Entries of the audit that are older than so many days go, whatever they are about.",
        "pack_dags_after_days": "The directories of a request's DAGs become one file each when it has been at an end for so many"
        " days; 0: never. The pages go on showing what is in them.",
        "archive_after_days": "A request that has been COMPLETED for so many days becomes ARCHIVED, once nothing is owed and"
        " its DAG directories are packed: the packs are moved to `archive_root`, and read from there. 0: never.",
        "archive_root": "Directory of the packs of archived requests, on any file system that all workers and web servers"
        " see; below `state_dir` (`archive`) without it.",
        "kept_logs_per_unit": "Attempts whose packed logs a work unit keeps at most: the first of each kind of error, then the"
        " newest of each node. This and the next three are written into each DAG when it is planned.",
        "kept_logs_per_dag": "The same for a whole DAG.",
        "kept_logs_mb_per_dag": "What the packed logs of a DAG may take in all, in MB; the newest one stays whatever it takes.",
        "kept_logs_of_successes": "Share of the nodes whose packed logs are kept although they did well: 0 is none, 1 is all.",
    },
    "Registration": {
        "effect_backoff_seconds": "Pauses after the first, second, … failure, separated by commas; the last one repeats.",
        "effect_max_pause_seconds": "The longest such pause, whatever the list says: lowered while a service comes and goes, what"
        " fails from then on is tried again sooner.",
        "effect_max_retry_seconds": "A registration that fails for longer is given up, its block is FAILED, an alert is raised.",
        "effect_gather_seconds": "Files of a block that are done within this time are registered and protected together; a"
        " block that is whole waits for nothing. 0: at once.",
        "effect_lease_seconds": "A registration whose worker has not renewed its claim for so long is made again.",
        "source_rule_cleanup": "What becomes of the rules that protect files where they were made: `expire` ends them when"
        " something else keeps the files, `keep` never.",
        "source_rule_days": "So many days after the later of a tape rule's OK, of any account, and the block's"
        " validation they end.",
        "source_rule_days_without_tape": "So many days after its validation they end for a block that a rule on disk keeps, and"
        " none on tape; 0: never. They never end by days alone: some other rule has to keep every file.",
        "source_block_rule": "One rule on a block replaces those on its files where all lie at one RSE.",
        "output_placement": "Who places outputs on tape and disk: `msoutput`, WMCore's, once requests are closed out or"
        " announced; WMS2 makes no such rule and keeps its source rules until a tape rule of any account is OK over all files;"
        " `wms2`, by the placements. Empty: `msoutput` while `reqmgr2_follow` is set, else `wms2`.",
        "tape_rse_expression": "Rucio expression of the tape RSEs that one is chosen from for each dataset.",
        "rule_approval_check_seconds": "Pause between two looks at a tape rule that waits for somebody's approval.",
        "rucio_project": "Metadata `project` of new containers and blocks: `Production`, `RelVal` or `Test`. Empty: RelVal for a"
        " request whose SubRequestType says so, else Production, and Test when the environment is not production.",
        "rule_activity": "Activity of all rules.",
        "reconcile_hours": "From one comparison of an output dataset with what DBS and Rucio hold to the next, and from one"
        " census of our rules to the next; 0: only when an operator asks.",
        "reconcile_days": "A dataset whose blocks have not changed for so many days is compared only when an operator asks.",
        "integrity_reminder_hours": "So often each site with open cases is told of in the log and counted as an alert. 0: never.",
        "primary_ds_type": "Type in DBS of the primary datasets of generated events.",
        "datasets_valid_at": "When datasets of requests that came from ReqMgr2 become VALID: at `completion`, by WMS2; or at"
        " `announcement`, when they are announced there, as for WMCore's; WMS2 leaves them PRODUCTION then. Others:"
        " at completion.",
        "physics_group": "Physics group of output datasets in DBS.",
    },
}  # fmt: skip

#: Variables that are read elsewhere than in ``wms2.conf``: heading -> {variable: (default, explanation)}.
VARIABLES: dict[str, dict[str, tuple[str, str]]] = {
    "Django, Celery and logs": {
        "WMS2_DATABASE_URL": ("required", "`postgresql://user:password@host/name`; a socket directory as `?host=/directory`."),
        "WMS2_BROKER_URL": ("required", "`redis://…`, or `redis+socket:///absolute/socket?virtual_host=0`."),
        "WMS2_SECRET_KEY": ("required", "Django's secret key: long and random, kept private."),
        "WMS2_DEBUG": ("0", "1 shows tracebacks in the browser. Never in production."),
        "WMS2_ALLOWED_HOSTS": ("127.0.0.1,localhost", "Names the web server answers to, separated by commas."),
        "WMS2_CSRF_TRUSTED_ORIGINS": ("empty", "Origins with scheme, separated by commas, when a proxy stands in front."),
        "WMS2_STATIC_ROOT": ("`.static` in the checkout", "Where `collectstatic` puts the admin's files."),
        "WMS2_LOG_LEVEL": ("INFO", "Least level that is written."),
        "WMS2_LOG_FORMAT": ("json", "`json`: one object a line; anything else: lines for a terminal."),
        "WMS2_NODE": ("the host's name", "Name of this node in leases; tells several nodes on one host apart."),
        "WMS2_SECRETS": ("/run/secrets", "Directory of files named like variables, `WMS2_…`, that `deploy/run/process` reads."),
        "WMS2_METRICS_ROOT": (
            "empty",
            "Directory above those in which web, workers and beat keep their counters; a scrape adds"
            " them up. Empty: `PROMETHEUS_MULTIPROC_DIR` alone is read.",
        ),
        "PROMETHEUS_MULTIPROC_DIR": (
            "empty",
            "Directory in which a process keeps its counters: one for each kind of process and"
            " each container, made before it starts. Empty: a scrape shows the counters of the process that answers.",
        ),
        "PORT": ("8000", "Port of the web server."),
        "FLOWER_PORT": ("5555", "Port of Flower."),
        "FLOWER_BASIC_AUTH": (
            "empty",
            "`name:password` that Flower asks for. Without it, and without `FLOWER_AUTH_PROVIDER`, it does not start:"
            " whoever gets in may stop workers.",
        ),
        "WMS2_BIND": ("127.0.0.1", "Address that the web server and Flower listen on."),
        "WMS2_WEB_PROCESSES": (
            "2",
            "Processes of the web server, each with `web_threads` threads and one for each of `feed_readers`.",
        ),
        "WMS2_WORKER_PROCESSES": ("2", "Tasks that one Celery worker runs at the same time, each in a process of its own."),
        "CONDOR_CONFIG": ("HTCondor's own", "The HTCondor configuration of the client; `BIN` in it must hold `condor_dagman`."),
    },
    "Finding faults": {
        "WMS2_CRASH_AT": ("empty", "Name of the point at which the process kills itself; see [crash-points](crash-points.md)."),
        "WMS2_CRASH_MARK": ("empty", "File that remembers which points have killed already, so that each kills once."),
    },
    "The stacks of `make`": {
        "WMS2_TOOLS_DIR": ("see below", "Where HTCondor and the Rucio server are installed, once for all checkouts of a user."),
        "WMS2_CHROMIUM": ("Debian's Chromium", "The browser of the tests. Unset, one is installed for them."),
        "WMS2_HTCONDOR": ("23", "Series of the private HTCondor, 23 or 25. When set, one on PATH is not used."),
        "WMS2_STACK_POOLS": ("1", "2: a second HTCondor pool runs beside the stack's own, for operators to add."),
        "WMS2_DEMO_TIMEOUT_SECONDS": ("600", "How long `make demo-check` waits for the requests to complete."),
        "WMS2_TEST_COSTS": ("empty", "Directory for what each test of a run costs; `make test` sets it."),
        "WMS2_FAULT_REPORT": ("empty", "File that tests of the fault catalogue add their results to; `make faults` sets it."),
        "WMS2_REAL_INPUTS": ("`../shared/real-inputs`", "Directory of real request documents, for the tests that read some."),
        "REQUEST": ("the demo's", "Document that `make demo` imports."),
        "ARGS": ("empty", "Arguments for pytest (`make test`) or `manage.py` (`make manage`)."),
        "PYTHON": ("the first found", "Interpreter, 3.11 or newer, that builds `.venv`."),
        "WMS2_DEBIAN_MIRROR": ("the mirror of the machine's apt", "Where the Debian packages of the private HTCondor come from."),
    },
}
