"""Browsers of four kinds of people."""

from tests.support.web_clients import built, nobody, operator, reader, staff

__all__ = ["built", "nobody", "operator", "reader", "staff"]
