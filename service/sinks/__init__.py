"""Sinks: from topics to the outside world.

``contract`` and ``batch`` are what an author of a sink sees; ``task`` is the runtime of one task; a folder is a sink.
"""
