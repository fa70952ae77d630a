"""Admin of requests_app: every row to look at, and the verbs of requests, effects, schedds and limits."""

from requests_app.admin import control, dags, failure_rules, pileup, records, requests, schedds, sites, verbs, workflows

__all__ = ["control", "dags", "failure_rules", "pileup", "records", "requests", "schedds", "sites", "verbs", "workflows"]
