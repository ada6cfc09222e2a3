"""What the exporter and the remediator share: config errors, web server, logging, guarded tasks."""
