"""Stand-ins for outside systems: real servers on loopback that know what they have told.

The demo, the benchmarks and the tests run fetchers against them. A simulator is deterministic by its seed, can be
scripted to fail as the real system fails, and keeps the accounts that the delivered records are compared with.
"""
