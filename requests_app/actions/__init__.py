"""What operators may do to the rows of requests_app, and what decides on a request although it is asked of a DAG or a case."""

from requests_app.actions import alerts, campaigns, control, parts, requests
from requests_app.harvesting import actions as harvesting
