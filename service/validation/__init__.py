"""Validation of connector configs before anything runs, and what can be configured: ConfigDef as clients see it.

Everything here is pure but for what a config itself names: files of config providers and contracts. It runs in a
thread with a time limit, because classes of users take part.
"""
