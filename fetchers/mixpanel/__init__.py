"""Mixpanel's raw event export, day by day.

``config`` the keys; ``windows`` which days are due (pure); ``bookmark`` the source offset; ``export`` one request and
what its status means; ``lines`` a body cut into records; ``fetcher`` the rounds that tie them together.

Facts: Mixpanel's ``openapi/export.openapi.yaml``, ``reference/rate-limits``, ``reference/event-deduplication`` and
``reference/raw-data-export-api-authentication``.
"""
