"""Runs connectors: supervises their tasks, restarts what may be restarted, stops in stages."""
