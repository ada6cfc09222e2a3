"""Generator of the Grafana dashboards: plain Python to plain JSON, no dependency."""
