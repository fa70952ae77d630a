"""Settings of the REST interface: sign-in, permissions, JSON only, problems, schema."""

from __future__ import annotations

from typing import Any

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "wms2.api.tokens.PersonalTokenAuthentication",
        "wms2.identities.bearer.BearerAuthentication",
        "wms2.api.tokens.ThrottledTokenAuthentication",
        "wms2.api.front_end.FrontEndAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["wms2.api.permissions.SignedInReadsOperatorsWrite"],
    "DEFAULT_THROTTLE_CLASSES": ["wms2.api.rate_limits.RateThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["wms2.api.parsers.StrictJsonParser"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "wms2.api.pagination.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "wms2.api.schema.ProblemAutoSchema",
    "EXCEPTION_HANDLER": "wms2.api.exceptions.exception_handler",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is answered 405; the schema says more
    "URL_FORMAT_OVERRIDE": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "WMS2",
    "DESCRIPTION": "Requests, workflows, DAGs, blocks, effects, admission and sites of WMS2. Guide: docs/api.md.",
    "VERSION": "1",
    "OAS_VERSION": "3.0.3",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": False},  # a link inside of the button that unfolds an operation is no use by keyboard
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": True,
    "ENUM_NAME_OVERRIDES": {
        "RequestStatus": "requests_app.models.RequestStatus",
        "WorkflowStatus": "requests_app.models.WorkflowStatus",
        "DAGStatus": "dags_app.models.DAGStatus",
        "DAGKind": "dags_app.models.DAGKind",
        "BlockStatus": "outputs_app.models.BlockStatus",
        "EffectState": "outputs_app.models.EffectState",
        "EffectKind": "outputs_app.models.EffectKind",
        "ChannelKind": "requests_app.models.ChannelKind",
        "MessageKind": "requests_app.models.MessageKind",
        "SiteStatus": "sites_app.models.SiteStatus",
        "StopMode": "requests_app.actions.requests.STOP_MODES",
        "ReleaseMode": "requests_app.actions.requests.RELEASE_MODES",
        "Health": "sites_app.models.Health",
        "ScheddState": "sites_app.models.ScheddState",
        "Severity": "requests_app.models.Severity",
        "PoolState": "sites_app.models.PoolState",
        "OnboardingState": "sites_app.models.OnboardingState",
        "NodeState": "dags_app.api.serializers.NODE_STATES",
        "LiveStatus": ["ok"],
        "ReadyStatus": ["ok", "unavailable"],
    },
}
