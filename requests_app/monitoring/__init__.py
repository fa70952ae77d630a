"""Health and metrics of the installation, and the gate of a foreign database."""
