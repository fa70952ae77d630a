"""Who starts next, and where (spec 4.4): the order, the limits, the share, the place, the pass over the queue."""
