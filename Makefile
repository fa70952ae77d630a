# Every target starts from a bare clone, may be repeated, and leaves no process behind. `make` lists them.
#   PYTHON=/path/to/python3    interpreter (3.11 or newer)          WMS2_HTCONDOR=23|25   series of the private HTCondor
#   WMS2_STATE_DIR, WMS2_TOOLS_DIR   where state and tools live     WMS2_DATABASE_URL, WMS2_BROKER_URL   servers of your own
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-check test test-long contract planted faults bench check audit ci stop clean-state shell-env manage pool-check screenshots lock
export ARGS REQUEST MONITORING
CONTRACT := DBS_URL DBS_READER_URL RUCIO_URL RUCIO_AUTH_URL RUCIO_HOME RUCIO_ACCOUNT RUCIO_SCOPE RUCIO_DISK RUCIO_TAPES \
  REQMGR2_URL REQMGR2_DOCUMENT PHYSICS_GROUP ON_PRODUCTION X509_USER_PROXY X509_USER_CERT X509_USER_KEY X509_CERT_DIR

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: ## install everything: .venv, HTCondor, the Rucio and XRootD servers, the tests' browser, nginx and Prometheus
	@deploy/bootstrap setup

demo: ## run all of WMS2 with four demo requests (or REQUEST=file.json) until Ctrl-C; MONITORING=1: with Prometheus and Alertmanager
	@deploy/bootstrap demo

demo-check: ## the demo from an empty state, verified, then stopped
	@deploy/bootstrap demo-check

test: ## the tests on their own stack; ARGS="..." goes to pytest
	@deploy/bootstrap test

test-long: ## what `make test` leaves out: many examples, many lives, every picture; ARGS="..." goes to pytest
	@deploy/bootstrap test-long

contract: ## the adapters against DBS_URL=, RUCIO_URL=, REQMGR2_URL=, each optional; without any against the test stack's services
	@$(foreach name,$(CONTRACT),$(if $($(name)),WMS2_CONTRACT_$(name)="$($(name))")) deploy/bootstrap contract

planted: ## the faults of tests/planted, each planted into a copy of the code and looked for by its tests
	@deploy/bootstrap planted

faults: ## the fault catalogue twice in a row, and a report of what each fault led to; ARGS="-k merge" names some
	@deploy/bootstrap faults

bench: ## measurements on a stack of their own; ARGS="input_scale" names some
	@deploy/bootstrap bench

check: ## static checks: ruff, its format, mypy, import contracts, migrations, deployment settings
	@deploy/bootstrap check

audit: ## bills of materials of the locks (offline), then known advisories: ends with 1 if there are some, 3 if OSV does not answer
	@deploy/bootstrap audit

ci: ## what .ci/run runs: check, test and demo-check
	@deploy/bootstrap ci

stop: ## stop whatever this checkout started
	@deploy/bootstrap stop

clean-state: ## stop, and remove this checkout's databases, queues, storage and secrets
	@deploy/bootstrap clean-state

shell-env: ## the line that gives your shell the demo's settings
	@deploy/bootstrap shell-env

manage: ## manage.py with the demo's settings; ARGS="showmigrations"
	@deploy/bootstrap manage

pool-check: ## start an HTCondor pool, run a hand-written DAG on it, stop the pool
	@deploy/bootstrap pool-check

screenshots: ## take the pictures of docs/screenshots anew
	@docs/screenshots/renew

lock: ## write requirements/*.txt anew from requirements/*.in
	@requirements/lock
