"""Structured logs: one JSON line a decision (or readable lines for a terminal)."""

from __future__ import annotations

from typing import Any

import structlog


def logging_config(level: str, *, json_lines: bool) -> dict[str, Any]:
    """Django's LOGGING dict; also configures structlog. Every line carries what was bound (``request_name``, ``dag_id``)."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer: Any = structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=False)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
            # Each answer has a line of its own (``wms2.web.request_log``); a 403 needs no traceback, a 500 does.
            "django.request": {"level": "ERROR"},
            "django.security": {"level": "CRITICAL"},  # wrong hosts and tokens against forgery, some with a traceback
            "celery": {"level": "INFO"},
            "kombu": {"level": "WARNING"},
        },
    }
