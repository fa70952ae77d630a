"""A real Rucio server on the loopback interface for the demo and the tests; see ``README.md``.

Standard library only, so that it runs before any virtual environment exists. What needs Rucio's own modules is in ``inside/``
and runs in the server's environment, except ``transfers.py``, which needs only rucio-clients.
"""
