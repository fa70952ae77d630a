# Every target starts from a bare clone and may be repeated. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help pool-check

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

pool-check: ## start an HTCondor pool, run a hand-written DAG on it, stop the pool
	@deploy/bootstrap pool-check
