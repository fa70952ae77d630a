"""Admin of requests_app: every row to look at; its buttons are the verbs of ``requests_app.actions``."""

from requests_app.admin import requests, rows
