"""Reads topics back for people and audits: records decoded by what their bytes say they are."""
