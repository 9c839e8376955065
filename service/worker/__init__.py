"""Runs connectors: supervises their tasks, restarts what may be restarted, stops step by step."""
