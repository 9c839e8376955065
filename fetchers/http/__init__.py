"""``HttpSource``: any endpoint that answers with JSON, NDJSON or CSV.

``config`` is what can be set, ``settings`` makes values of the toolkit of it, ``templates`` fills stored offsets into
requests, ``bookmark`` is the source offset, ``answers`` cuts an answer, ``fetcher`` puts them together.
"""
