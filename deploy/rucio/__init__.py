"""A real Rucio server on the loopback interface for the demo and the tests; see ``README.md``.

Standard library only, as what starts it. What needs Rucio's own modules is in ``inside/`` and runs in the server's environment.
"""
