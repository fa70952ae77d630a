"""Admin of requests_app: every row to look at; its buttons are the verbs of ``requests_app.verbs``."""

from requests_app.admin import requests, rows
