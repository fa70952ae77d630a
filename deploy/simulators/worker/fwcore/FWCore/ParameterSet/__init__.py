"""Parameter sets: see ``Config``."""
