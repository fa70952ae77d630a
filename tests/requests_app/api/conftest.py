"""Clients of the REST interface."""

from tests.support.rest_clients import nobody, operator, reader

__all__ = ["nobody", "operator", "reader"]
