"""Reading pages: the text of an element by its id, and links."""

from __future__ import annotations

from html.parser import HTMLParser

_APART = frozenset({"td", "th", "tr", "li", "p", "div", "dt", "dd", "h1", "h2", "h3"})
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "rect", "path", "circle", "wbr"})


class _Part(HTMLParser):
    def __init__(self, wanted: str | None) -> None:
        super().__init__()
        self.wanted, self.depth, self.words, self.links = wanted, 0 if wanted else 1, [], []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if self.depth and tag in _APART:
            self.words.append(" ")
        if self.depth or (self.wanted and found.get("id") == self.wanted):
            if tag not in _VOID:
                self.depth += 1
            if tag == "a" and found.get("href"):
                self.links.append(found["href"])

    def handle_endtag(self, tag: str) -> None:
        if self.depth and tag not in _VOID:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.words.append(data)


def _read(html: str, wanted: str | None) -> _Part:
    part = _Part(wanted)
    part.feed(html)
    return part


def text(html: str, wanted: str | None = None) -> str:
    """All text, or that of the element with this id, in one line."""
    return " ".join("".join(_read(html, wanted).words).split())


def links(html: str, wanted: str | None = None) -> list[str]:
    """Addresses of links."""
    return [str(link) for link in _read(html, wanted).links]
