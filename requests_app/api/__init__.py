"""REST of requests_app: requests and their verbs, workflows, admission, life cycle, status."""
