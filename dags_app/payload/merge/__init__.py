"""The ``merge`` and ``cleanup`` commands."""
