"""The ``job`` command and what it needs on the worker node, and ``gather``, which prepares it."""
