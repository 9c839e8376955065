"""``HttpSource``: any endpoint that answers with JSON, NDJSON or CSV.

``config`` is what can be set, ``findings`` says what does not fit together in it, ``settings`` makes values of the
toolkit of it. ``asking`` asks for a page of a list, with ``templates`` for stored offsets in requests and ``answers``
to cut what came; ``walk`` and ``anew`` are the two kinds of rounds through its pages, ``parents`` the list of lists,
and ``bookmark`` the source offset. ``fetcher`` puts them together.
"""
