"""The life cycle (spec 4.2): the cycle and its leader, one evaluation of one request, and a handler for each status."""
