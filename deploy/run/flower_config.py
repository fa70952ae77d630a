"""Flower's configuration file, which it reads as Python: it only shows, and WMS2's web server says to whom.

Each request but the health check is let in when the web server answers 204 to the cookie or token that came with it
(``GET /api/v1/auth/flower``): operators and administrators. While the web server does not answer no request is let in. Other
headers are not passed on: what a front end says of its client counts only where the front end itself says it.
What Flower could change in workers would have neither role nor audit; *Worker pools* has both.
"""

import os

from flower.api import BaseApiHandler
from flower.urls import handlers
from flower.views import BaseHandler
from flower.views.monitor import Healthcheck
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.web import StaticFileHandler

_WEB = os.environ.get("WMS2_WEB_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
_ASKED = f"{_WEB.rstrip('/')}/api/v1/auth/flower"
_SECONDS = 10.0
_WORDS = {
    401: "Sign in to WMS2 first, in this browser and at the same host name, then load this page again.",
    403: "Flower is open to WMS2's operators and administrators.",
    429: "Too many requests for now; wait some seconds.",
}
_OPEN = (Healthcheck, StaticFileHandler)

read_only = True
auth = "signed-in-at-wms2"  # no address matches it; it turns on Flower's own checks against forged requests

if os.environ.get("FLOWER_BASIC_AUTH") or os.environ.get("FLOWER_AUTH_PROVIDER"):
    raise SystemExit(
        "unset FLOWER_BASIC_AUTH and FLOWER_AUTH_PROVIDER: Flower asks WMS2 who is signed in, and no other login is used"
    )


async def _prepare(handler: BaseHandler) -> None:
    """Tornado calls it before the method; a finished answer is all that the client gets."""
    if isinstance(handler, _OPEN):
        return
    came = {name: handler.request.headers[name] for name in ("Cookie", "Authorization") if name in handler.request.headers}
    headers = {**came, "X-Forwarded-Proto": "https"}  # as the proxy in front would say
    try:
        answer = await AsyncHTTPClient().fetch(
            _ASKED, headers=headers, raise_error=False, follow_redirects=False, request_timeout=_SECONDS
        )
        code = answer.code
    except (OSError, HTTPClientError):
        code = 503
    if code == 204:
        handler.current_user = "signed in"
        return
    handler.set_status(code if code in _WORDS else 503)
    handler.set_header("Content-Type", "text/plain; charset=utf-8")
    handler.finish(_WORDS.get(code, f"WMS2's web server does not say who may see this ({_WEB}); try again later."))


BaseHandler.prepare = BaseApiHandler.prepare = _prepare
for _entry in handlers:
    _page = getattr(_entry, "handler_class", None) or _entry[1]
    if not issubclass(_page, _OPEN) and getattr(_page, "prepare", None) is not _prepare:
        raise SystemExit(f"not started: a page of this release of Flower asks for no sign-in ({_page.__name__})")
