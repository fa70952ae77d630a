"""Pages in a real browser. A package, so that what has its scope ends with it."""
