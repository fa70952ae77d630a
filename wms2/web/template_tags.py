"""Filters of the pages' templates: statuses in colour, ages, sizes. They format; they neither query nor decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import conditional_escape, escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from wms2.conf import conf
from wms2.identities.grants import enters_admin, is_operator
from wms2.identities.sso_sessions import SSO_NOTICE
from wms2.runtime import levels
from wms2.web import addresses, formatting
from wms2.web.addresses import AddressTarget, address
from wms2.web.charts import chart_table
from wms2.web.colours import colour

#: The sections of the pages: name of the address -> what it is called.
DOORS = {
    "overview": "Overview", "board": "Requests", "campaigns": "Campaigns", "sites": "Sites", "failures": "Failures",
    "outputs": "Outputs", "cases": "Cases", "alerts": "Alerts", "operations": "Operations",
}  # fmt: skip
#: Kind of thing -> services that show it, as pages call them and as the setting ``links`` does.
_DATA = (("DAS", "das"), ("Rucio", "rucio"))
_OUTSIDE = {
    "request": (("ReqMgr2", "reqmgr2"),), "prep_id": (("McM", "mcm"),), "dataset": _DATA, "block": _DATA, "file": _DATA,
    "site": (("CRIC", "cric"),),
}  # fmt: skip
register = template.Library()
register.filter("ago", formatting.ago)
register.filter("lasting", formatting.duration)
register.filter("enters_admin", enters_admin)
register.simple_tag(chart_table)
register.filter("colour", lambda status: colour(str(status)))


@register.simple_tag(takes_context=True)
def navigation(context: template.Context) -> SafeString:
    """Links to the sections; a page below one names it by ``section`` in its context, so that it is marked there too."""
    match = getattr(context.get("request"), "resolver_match", None)
    here = context.get("section") or (match.url_name if match else "")
    found = [(url, name == here, label) for name, label in DOORS.items() if (url := address(name))]
    links = ((url, mark_safe(' aria-current="page"') if mark else "", label) for url, mark, label in found)
    return format_html_join("\n", '<a href="{}"{}>{}</a>', links)


@register.simple_tag(takes_context=True)
def sought(context: template.Context) -> AddressTarget:
    """What a wrong address was of. Django's own words for a row that is not there say less."""
    said = str(context.get("exception") or "")
    own = said if said[:1].islower() else ""
    return addresses.sought(context["request"].path, f"{own[:1].upper()}{own[1:]}." if own else "")


@register.simple_tag
def links_out(kind: str, name: str) -> SafeString:
    """Where other services show the same ``request``, ``prep_id``, ``dataset``, ``block``, ``file`` or ``site``, as far as the
    setting ``links`` says where; each opens where it stands, and is named as its service."""
    shown = [(url, label) for label, place in _OUTSIDE[kind] if (url := addresses.filled(conf().links.get(place, ""), name))]
    return format_html_join(" ", '<a class="outside" href="{}" rel="noreferrer">{}</a>', shown)


@register.simple_tag
def badge(choice: Any, label: str = "") -> SafeString:
    """A member of an enum, or a value with its label, in its colour."""
    return format_html('<span class="badge colour-{}">{}</span>', colour(str(choice)), label or getattr(choice, "label", choice))


@register.simple_tag
def sso_label() -> str:
    """What single sign-on is called; empty: there is none."""
    return conf().sso_label if conf().sso_issuer else ""


@register.simple_tag(takes_context=True)
def sso_notice(context: template.Context) -> SafeString:
    """That the issuer did not confirm the user's roles in time; empty when all is well."""
    said = getattr(context.get("request"), SSO_NOTICE, "")
    return format_html('<p class="notice colour-bad errornote" role="alert">{}</p>', said) if said else mark_safe("")


@register.simple_tag
def service_notice() -> SafeString:
    """That nothing new starts, or that the service is strained, and why; empty when all is well."""
    known, shown = levels.known(), '<p class="notice colour-bad errornote" role="alert"><strong>{}</strong> {}.</p>'
    if known.no_new_work:
        said, why = "No new work starts; what runs goes on.", known.no_new_work
    elif known.level is levels.Level.STRAINED:
        said, why = "The service is strained; what can wait is put off.", known.why
    else:
        return mark_safe("")
    return format_html(shown, said, why[:1].upper() + why[1:])


@register.simple_tag
def same_as(address: str, query: str = "") -> SafeString:
    """Where a list over REST has the same, narrowed in the same way."""
    begin = f"{address}?{query.strip('&')}&" if query else f"{address}?"
    shown = 'The same as <a href="{}">JSON</a> and <a href="{}format=csv">CSV</a>.'
    return format_html(shown, begin[:-1], begin)


def _files(address: str, query: str) -> SafeString:
    links = ((f"{address}?{query}{'&' if query else ''}format={form}", form.upper()) for form in ("csv", "json"))
    return format_html_join(" · ", '<a href="{}">{}</a>', links)


@register.simple_tag
def rest_list(name: str, **narrowed: Any) -> SafeString:
    """A list over REST, by the name of its address, narrowed by these filters, as files."""
    return _files(reverse(name), urlencode(narrowed))


@register.simple_tag(takes_context=True)
def list_files(context: template.Context, name: str) -> SafeString:
    """A list of the page that is shown, as files at the page's own address (``requests_app.pages.tables``)."""
    asked = context["request"].GET.copy()
    asked["list"] = name
    return _files("", asked.urlencode())


@register.simple_tag(takes_context=True)
def live_title(context: template.Context, *words: object) -> SafeString:
    """Of each live part: what the window's title says now, and for the dot in the header whether requests are driven."""
    title = '<div id="part-title" data-title="{} · WMS2" data-undriven="{}"></div>'
    return format_html(title, "".join(map(str, words)), context["lifecycle"].undriven)


@register.simple_tag
@lru_cache(maxsize=10_000)
def page_link(page: str, key: Any, shown: str = "", style: str = "") -> SafeString:
    """A link to something's page by its key, which is shown where ``shown`` is empty; the words alone where it can have none."""
    words, url = shown or breakable(str(key)), address(page, key)
    attributes = format_html('class="{}" ', style) if style else ""
    return format_html('<a {}href="{}">{}</a>', attributes, url, words) if url else conditional_escape(words)


@register.simple_tag
def request_link(name: str) -> SafeString:
    """To a request's page, by its name."""
    return page_link("request-page", name, style="name")


@register.simple_tag
def request_name(row: Any) -> SafeString:
    """A request's name that leads to its page, its prep id below. A tag, as are the next two: hundreds stand on a page, and a
    template that is included costs ten times as much.
    """
    link = request_link(row.request_name)
    return link + format_html('<span class="under">{}</span>', row.prep_id) if row.prep_id else link


@lru_cache(maxsize=500)
def _labels(field: Any) -> dict[Any, str]:
    return {value: str(said) for value, said in field.flatchoices}


@register.filter
def label(row: Any, name: str) -> str:
    """What ``get_NAME_display`` says, which makes a table of all choices each time; for lists."""
    value: str = getattr(row, name)
    return _labels(row._meta.get_field(name)).get(value, value)


@register.simple_tag
def status_for(status: Any, since: datetime) -> SafeString:
    """A status in its colour, and for how long."""
    lasting = formatting.moment(since, age(since), f"since {exact(since)}")
    return format_html('{} <span class="age">{}</span>', badge(status), lasting)


def _bar(label: str, numbers: str, *parts: str) -> SafeString:
    """A bar with its parts, and numbers beside it, which may have further lines below; of numbers and words of ours alone."""
    return mark_safe(  # noqa: S308
        f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{label}">\n'
        f'  <rect class="bar-all" width="100" height="8"/>{"".join(parts)}\n</svg>\n<span class="numbers">{numbers}</span>'
    )


@register.simple_tag
def progress(units: Any) -> SafeString:
    """Work units as a bar and in numbers; ``units`` has them by state."""
    done, total, unaccounted, failed = units.done, units.total, units.done_unaccounted, units.failed
    if not total and not failed:
        return mark_safe('<span class="quiet">none yet</span>')
    label, numbers, parts = f"{done} of {total} work units done", f"{done:,} of {total:,}", []
    if total:
        share = round(done / total * 100)
        parts.append(f'<rect class="bar-done" width="{share}" height="8"/>')
        if unaccounted:
            parts.append(f'<rect class="bar-bad" x="{share}" width="{round(unaccounted / total * 100)}" height="8"/>')
    if unaccounted:
        label += f", {unaccounted} unaccounted"
        numbers += f' <span class="under colour-text-bad">{unaccounted} unaccounted</span>'
    if failed:
        numbers += f' <span class="under">{failed:,} failed, planned anew</span>'
    return _bar(label, numbers, *parts)


#: So many units have room for their names.
_MOST_NAMED = 24
_SQUARE = '<li class="unit unit-{}" title="{}: {}">{}{}{}</li>'


@register.simple_tag
def units(cells: Sequence[Any], tries: Mapping[str, int] | None = None) -> SafeString:
    """Work units as squares, named where they are few; with ``tries`` (unit -> how many, where there were several) each leads to
    its nodes. A tag, as a thousand of them are drawn."""
    few = len(cells) <= _MOST_NAMED

    def square(cell: Any) -> tuple[Any, ...]:
        name, site = cell.unit.name, cell.unit.site
        number = f"{tries[name]} tries" if tries and name in tries else ""
        words = f"{cell.words}; {number}" if number else cell.words
        if few:
            short = f"{number}, " if number else ""
            shown = format_html("<span>{}</span> <small>{}{}</small>", name, short, breakable(site) if site else cell.words)
        else:
            shown = format_html('<span class="hidden">{}: {}</span>', name, words)
        if tries is None:
            return cell.state, name, words, "", shown, ""
        begin = format_html('<a href="?unit={}#unit"{}>', name, "" if few else mark_safe(' class="fill"'))
        return cell.state, name, words, begin, shown, mark_safe("</a>")

    drawn = format_html_join("", _SQUARE, map(square, cells))
    return format_html('<ol class="units{}" aria-label="Work units">\n{}\n</ol>', " chips" if few else "", drawn)


@register.simple_tag
def asked(work: Any, units: Any) -> SafeString:
    """How much of what was asked for is done, as a bar and in numbers, work units below; these alone where no more is known."""
    if work is None:
        return progress(units)
    if work.done is None:
        return progress(units) + format_html('<span class="under">of {} {} asked for</span>', f"{work.asked:,}", work.unit)
    words, share = f"{work.done:,} of {work.asked:,} {work.unit}", round(work.share * 100)
    bar = _bar(f"{words} done", words, f'<rect class="bar-done" width="{share}" height="8"/>')
    below = [f'<span class="under">{units.done:,} of {units.total:,} work units</span>'] if units.total else []
    if units.done_unaccounted:
        below.append(f'<span class="under colour-text-bad">{units.done_unaccounted} unaccounted</span>')
    return mark_safe("".join([bar, *below]))  # noqa: S308  (numbers and words of ours)


@register.simple_tag(takes_context=True)
def flower_url(context: Any) -> str:
    """Where the Celery workers are shown; empty when nowhere, or not to this user."""
    url = conf().flower_url
    return url if url and is_operator(context["user"]) else ""


@register.simple_tag
def stream_address() -> str:
    """Where pages hear of what happens; empty: they ask by themselves, since each stream of the web's keeps a thread."""
    return reverse("event-stream") if conf().stream_url else ""


@register.filter
def age(moment: datetime | None) -> str:
    """How long ago it was, without saying "ago"."""
    return formatting.duration((timezone.now() - moment).total_seconds()) if moment else ""


@register.filter
def took(start: datetime | None, end: datetime | None) -> str:
    """From one moment to another."""
    return formatting.duration((end - start).total_seconds()) if start and end else ""


@register.filter
def exact(moment: datetime | None) -> str:
    """A moment, to the second, as a text for attributes and sentences; ``moment`` where an element may stand."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""


@register.filter
def moment(at: datetime | None) -> SafeString:
    """A moment, to the second, as an element."""
    return formatting.moment(at) if at else mark_safe("")


@register.filter
def size(number: int | None) -> str:
    """Bytes."""
    return "" if number is None else formatting.size(number)


@register.filter
def thousands(number: int | None) -> str:
    """``100,000``."""
    return "" if number is None else f"{number:,}"


@register.filter
def amount(number: float | None) -> str:
    """A measured number with the digits that say something."""
    return "" if number is None else formatting.number(number)


@register.filter
def percent(share: float | None) -> str:
    """A share of 1."""
    return "" if share is None else f"{share:.0%}"


@register.filter
def setting(value: float, name: str) -> str:
    """A limit's value as a person reads it; its name carries its unit."""
    plain = f"{value:,}" if isinstance(value, int) or value >= 1 else f"{value:g}"
    if name.endswith("_seconds"):
        return f"{plain} ({formatting.duration(value)})"
    return f"{plain} ({formatting.size(int(value))})" if name.endswith("_bytes") else plain


@register.filter
def spoken(code: str) -> str:
    """``request_import`` as ``request import``."""
    return code.replace("_", " ")


@register.filter
def of(found: Any, key: str) -> Any:
    """What a mapping has for a key; empty without one."""
    return found.get(key, "")


@register.filter
def breakable(name: object) -> SafeString:
    """A name with places where a line may break, of which a copy takes nothing along."""
    return mark_safe(escape(name).replace("_", "_<wbr>"))  # noqa: S308  (escaped)
