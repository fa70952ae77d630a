"""One Content-Security-Policy on every answer, the REST interface's and errors included.

Everything comes from this server, events also from the process ``stream`` if that has another address: no inline script, no
inline style, no evaluation, no frame, no plug-in, no foreign form target.
A page that needs more does not get it; the page is changed. The sign-in page alone may send its form on to the issuer of single
sign-on.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from wms2.conf import conf

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
#: Swagger draws its arrows from data: images; nothing else of it is allowed more.
SWAGGER_POLICY = f"{POLICY}; img-src 'self' data:"
SWAGGER_VIEW = "api-docs"
#: Pages with the button of single sign-on; browsers hold the redirect to the issuer that answers it for a target of the form.
SIGN_IN_VIEWS = ("login", "sso-login", "sso-callback")
HEADER = "Content-Security-Policy"


class ContentSecurityPolicyMiddleware(MiddlewareMixin):
    """The outermost of WMS2's middlewares, so that no answer leaves without the header."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Add the header."""
        match = request.resolver_match
        view = match.url_name if match is not None else ""
        policy = SWAGGER_POLICY if view == SWAGGER_VIEW else POLICY
        if view in SIGN_IN_VIEWS and (issuer := urlsplit(conf().sso_issuer)).netloc:
            policy = POLICY.replace("form-action 'self'", f"form-action 'self' {issuer.scheme}://{issuer.netloc}")
        stream = urlsplit(conf().stream_url)
        response[HEADER] = f"{policy}; connect-src 'self' {stream.scheme}://{stream.netloc}" if stream.netloc else policy
        return response
