"""Views of lists that do no more than hand the filters of their address to a page."""

from __future__ import annotations

from requests_app.pages.alerts import alerts_page
from requests_app.pages.campaigns import campaigns_page
from requests_app.pages.cases import cases_page, groups_table
from requests_app.pages.failures import concerned_table, failures_page, samples_table
from requests_app.pages.rendering import filtered_page
from requests_app.pages.sites import sites_page

alerts = filtered_page(
    "alerts/alerts", "alerts", lambda request, given: alerts_page(given, request.user, request.get_full_path())
)
campaigns = filtered_page("campaigns/list", "campaigns", lambda _, given: campaigns_page(given))
cases = filtered_page(
    "requests/cases", "cases", lambda _, given: cases_page(given),
    sites=lambda seen: groups_table(seen.sites), requests=lambda seen: groups_table(seen.requests),
)  # fmt: skip
failures = filtered_page(
    "failures/list", "failures", lambda _, given: failures_page(given), requests=concerned_table, samples=samples_table
)
sites = filtered_page("sites/list", "sites", lambda _, given: sites_page(given))
