"""The OpenAPI document is valid: ``python -m deploy.stack.openapi`` generates it and has openapi-spec-validator check it."""

from __future__ import annotations

import sys

import django
from openapi_spec_validator import OpenAPIV30SpecValidator


def main() -> int:
    """Print each error; 1 where there is one."""
    django.setup()
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.generators import SchemaGenerator

    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    errors = [f"{error.json_path}: {error.message}" for error in OpenAPIV30SpecValidator(document).iter_errors()]
    errors += [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]
    print("\n".join(errors) or f"{len(document['paths'])} addresses, valid OpenAPI {document['openapi']}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
