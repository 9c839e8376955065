"""Metrics of the worker's process: measured by the client library, on Linux only."""

from __future__ import annotations

from metrics.catalogue.declaration import Kind, Metric

RESIDENT_MEMORY = Metric("process_resident_memory_bytes", Kind.GAUGE, "Memory of the Python process; not of Spark.")
VIRTUAL_MEMORY = Metric("process_virtual_memory_bytes", Kind.GAUGE, "Address space reserved.")
CPU = Metric("process_cpu_seconds_total", Kind.COUNTER, "CPU time used.")
START_TIME = Metric("process_start_time_seconds", Kind.GAUGE, "Start, seconds since the epoch.")
OPEN_FILES = Metric("process_open_fds", Kind.GAUGE, "Files and sockets open.")
OPEN_FILES_MAX = Metric("process_max_fds", Kind.GAUGE, "Files and sockets that may be open.")
