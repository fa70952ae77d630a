"""One Content-Security-Policy on every answer, the REST interface's and errors included.

Everything comes from this server: no inline script, no inline style, no evaluation, no frame, no plug-in, no foreign form target.
A page that needs more does not get it; the page is changed.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)
#: Swagger draws its arrows from data: images; nothing else of it is allowed more.
SWAGGER_POLICY = f"{POLICY}; img-src 'self' data:"
SWAGGER_VIEW = "api-docs"
HEADER = "Content-Security-Policy"


class ContentSecurityPolicyMiddleware(MiddlewareMixin):
    """The outermost of WMS2's middlewares, so that no answer leaves without the header."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Add the header."""
        match = request.resolver_match
        response[HEADER] = SWAGGER_POLICY if match is not None and match.url_name == SWAGGER_VIEW else POLICY
        return response
