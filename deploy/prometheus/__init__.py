"""A real Prometheus and Alertmanager for the demo and the tests: installation, configuration, and what receives the alerts."""
