"""Who does the work, and with what: worker pools, leases of shared resources, tasks that fail (ADR 0028). Knows no request."""
