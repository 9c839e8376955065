"""What every test may use. Fixtures live in plugins by what they are about."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.stack", "tests.java_connect", "tests.headrace_worker", "tests.faults.options"]

# A busy machine is no failure: no test is right or wrong by how long it takes.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
