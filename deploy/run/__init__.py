"""WMS2's own processes: one at a time, under a process manager, or in containers with Prometheus and Grafana."""
