"""What every test may use. Fixtures live in plugins by what they are about."""

from __future__ import annotations

pytest_plugins = ["tests.stack", "tests.java_connect", "tests.headrace_worker", "tests.faults.options"]
