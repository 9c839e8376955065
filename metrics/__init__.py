"""What happened, told once: events, and the metrics, logs, dashboards and alert rules made of them.

``events`` has one frozen class per fact and no third-party import: every other room may emit.
``fanout`` carries one event to all observers; ``prometheus`` and ``logging`` are such observers.
"""
