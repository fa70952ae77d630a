"""REST of requests_app: requests and their operations, workflows, admission, life cycle, status."""
