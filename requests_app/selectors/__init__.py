"""Reads of requests_app, shared by the REST interface, pages and metrics. Nothing here writes."""
