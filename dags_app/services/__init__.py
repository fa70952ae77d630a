"""Writes of dags_app, one noun a module: ``plan``, ``submit``, ``watch``, ``units``, ``outcome``, ``stop``."""
