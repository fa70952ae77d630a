"""Writes of dags_app, one resource a module: ``plan``, ``submit``, ``watch``, ``units``, ``outcome``, ``stop``."""
