"""What is said of alerts: content of messages, as webhooks get it, and the forms in which mail, Mattermost and Alertmanager do.

Pure functions over rows already read; alerts of one code and cause are one item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from requests_app.models import Alert, Request, RequestStatus, RequestTransition, Severity
from requests_app.selectors.alert_texts import runbook_url, words_of
from requests_app.selectors.alerts import title_of
from wms2.conf import conf
from wms2.runtime.grouping import grouped

#: Of one item.
_SUBJECTS, _TEXT = 10, 500
#: Items of one message; the others are counted.
MOST_ITEMS = 50
#: Alertmanager takes an alert for over when it was not repeated for so long.
LASTS = timedelta(minutes=5)
NEW, REMINDER, OVER, WAITS, ENDED = "firing", "reminder", "over", "waits", "ended"
_SAID = {NEW: "New", REMINDER: "Still open", OVER: "Over", WAITS: "Waits", ENDED: "Ended"}
#: What the end of a request means to who watches it.
_ENDS = {
    RequestStatus.COMPLETED: "All that it makes is made, registered and validated.",
    RequestStatus.ARCHIVED: "Its outputs stay; what WMS2 needed for its work is removed.",
    RequestStatus.FAILED: "It was given up; what is done of it stays as it is.",
    RequestStatus.ABORTED: "It was aborted; what is done of it stays as it is.",
    RequestStatus.CLEANED: "All that it had made is removed.",
}
_RANK = {severity.value: number for number, severity in enumerate(Severity)}


def together(alerts: Iterable[Alert]) -> list[list[Alert]]:
    """By code and cause, the most severe and then the oldest first."""
    found = grouped(alerts, lambda alert: (alert.code, alert.cause))
    return sorted(found.values(), key=lambda rows: (_RANK.get(rows[0].severity, 9), min(row.since for row in rows), rows[0].code))


def item(rows: Sequence[Alert], state: str) -> dict[str, Any]:
    """What is said of alerts of one code and cause."""
    first, names = rows[0], [row.subject for row in rows]
    words = words_of(first.code)
    requests = sum(row.request_id is not None for row in rows)
    return {
        "state": state,
        "code": first.code,
        "cause": first.cause,
        "severity": first.severity,
        "title": title_of(first.code, first.cause, names, len(rows), requests),
        "number": len(rows),
        "subjects": names[:_SUBJECTS],
        "means": words.means,
        "todo": words.todo,
        "text": first.text[:_TEXT],
        "owner": first.owner,
        "since": min(row.since for row in rows).isoformat(),
        "url": page_url(f"/alerts/?code={first.code}"),
        "runbook_url": runbook_url(first.code),
    }


class End(NamedTuple):
    """A request that has come to an end, and by which transition."""

    request: Request
    last: RequestTransition | None


def ended_item(end: End) -> dict[str, Any]:
    """What is said of it, in the form of an alert's item."""
    name, status, last = end.request.request_name, RequestStatus(end.request.status), end.last
    return {
        "state": ENDED,
        "code": f"request_{status}",
        "cause": "",
        "severity": Severity.INFO.value,
        "title": f"{name} is {status.label.lower()}",
        "number": 1,
        "subjects": [name],
        "means": _ENDS[status],
        "todo": "",
        "text": f"By {last.actor}: {last.reason}"[:_TEXT] if last else "",
        "owner": "",
        "since": end.request.status_since.isoformat(),
        "url": page_url(f"/requests/{name}/"),
        "runbook_url": "",
    }


def content(parts: Mapping[str, Iterable[Alert]], now: datetime, ended: Iterable[End] = ()) -> dict[str, Any]:
    """Of one message: the requests that have ended, and by state the alerts that it is about."""
    items = [ended_item(each) for each in ended]
    items += [item(rows, state) for state, alerts in parts.items() for rows in together(alerts)]
    return {
        "installation": conf().instance,
        "at": now.isoformat(),
        "alerts": items[:MOST_ITEMS],
        "left_out": max(0, len(items) - MOST_ITEMS),
    }


def page_url(path: str) -> str:
    """An address of these pages; empty where the setting does not say where they are."""
    return f"{conf().pages_url.rstrip('/')}{path}" if conf().pages_url else ""


def subject_line(said: Mapping[str, Any], kind: str) -> str:
    """Of a mail: one line."""
    items = said["alerts"]
    whole = {"digest": f"{len(items)} wait for people", "test": "test message"}.get(kind, "")
    if not whole:
        whole = f"{_SAID[items[0]['state']]}: {items[0]['title']}" + (f", and {len(items) - 1} more" if len(items) > 1 else "")
    return " ".join(f"[{said['installation']}] {whole}".split())[:200]


def plain_text(said: Mapping[str, Any], kind: str) -> str:
    """The body of a mail."""
    lines = [f"WMS2 {said['installation']}, {said['at'][:16].replace('T', ' ')} UTC", ""]
    if kind == "test":
        lines += ["This is a test message; nothing is wrong.", ""]
    elif not said["alerts"]:
        lines += ["Nothing waits for people.", ""]
    for each in said["alerts"]:
        owner = f", {each['owner']} has it" if each["owner"] else ""
        lines.append(f"{_SAID[each['state']]} ({each['severity']}): {each['title']}{owner}")
        lines += [f"    {each['means']}"] if each["means"] != each["code"] else []
        lines += [f"    {line}" for line in each["text"].splitlines()]  # none of its own looks like one of ours
        if each["number"] > 1:
            more = each["number"] - len(each["subjects"])
            lines.append(f"    {', '.join(each['subjects'])}{f' and {more} more' if more else ''}")
        if each["state"] != OVER:
            lines += [f"    Do: {each['todo']}"] if each["todo"] else []
            lines += [f"    {address}" for address in (each["runbook_url"], each["url"]) if address]
        lines.append("")
    if said["left_out"]:
        lines.append(f"{said['left_out']} more are on the page.")
    return "\n".join(lines)


_MARKS = {"critical": ":red_circle:", "warning": ":large_orange_circle:", "info": ":large_blue_circle:"}


def mattermost(said: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What an incoming webhook of Mattermost takes."""
    if kind == "test":
        return {"text": f"WMS2 {_plain(said['installation'])}: test message; nothing is wrong."}
    lines = [f"**WMS2 {_plain(said['installation'])}**"]
    for each in said["alerts"]:
        mark = ":white_check_mark:" if each["state"] == OVER else _MARKS.get(each["severity"], "")
        title = f"[{_plain(each['title'])}]({each['url']})" if each["url"] else _plain(each["title"])
        lines.append(f"{mark} {_SAID[each['state']]}: {title}" + (f"\n> {_plain(each['text'])}" if each["text"] else ""))
    if said["left_out"]:
        lines.append(f"and {said['left_out']} more")
    return {"text": "\n".join(lines)[:16000]}


def _plain(text: str) -> str:
    """Text that others wrote neither calls people nor makes links or lines of its own."""
    plain = " ".join(text.split())
    for sign in "\\`*_[]()<>|#~":
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("@", "@\u200b")


def alertmanager(rows: Sequence[Alert], now: datetime) -> dict[str, Any]:
    """One alert as ``POST /api/v2/alerts`` takes it, of those of one code and cause: its labels are its identity, so that nothing
    that changes while it goes on is among them."""
    first, ended = rows[0], [row.ended_at for row in rows]
    said = item(rows, NEW)
    labels = {"alertname": first.code, "installation": conf().instance, "severity": first.severity, "cause": first.cause}
    labels |= {name: value for name in ("site", "schedd", "pool") if (value := getattr(first, name)) and value == first.cause}
    notes = {
        "summary": said["title"],
        "description": f"{said['means']} {said['text']}".strip(),
        "subjects": ", ".join(said["subjects"]),
        "todo": said["todo"],
        "owner": said["owner"],
        "runbook_url": said["runbook_url"],
    }
    over = max((each for each in ended if each is not None), default=now) if all(ended) else now + LASTS
    made = {"labels": _filled(labels), "annotations": _filled(notes), "startsAt": said["since"], "endsAt": over.isoformat()}
    return made | ({"generatorURL": said["url"]} if said["url"] else {})


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def heartbeat(now: datetime) -> dict[str, Any]:
    """The alert that always fires: Alertmanager, or what watches it, rings when it is missing."""
    return {
        "labels": {"alertname": "heartbeat", "installation": conf().instance, "severity": "info"},
        "annotations": {"summary": "WMS2 looks after its requests; this alert always fires."},
        "startsAt": now.isoformat(),
        "endsAt": (now + LASTS).isoformat(),
    }
