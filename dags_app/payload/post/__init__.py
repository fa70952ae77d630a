"""DAGMan's scripts that judge: after each attempt, at the choice of a site."""
