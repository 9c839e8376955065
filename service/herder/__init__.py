"""The herder: which connectors there are, who runs them, and what becomes of a request.

A tick of small named steps over pure functions: read the config log and the group's roster, work out the assignment,
say what should run here, let ``service.worker`` reconcile. No request and no tick ever waits for a connector.
"""
