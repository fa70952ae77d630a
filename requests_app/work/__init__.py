"""A request's work: what there is of it, what is planned, done and left, and how the next round is planned."""
