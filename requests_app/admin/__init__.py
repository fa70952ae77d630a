"""Admin of requests_app: every row to look at; its buttons are the operations of ``requests_app.actions``."""

from requests_app.admin import requests, rows
