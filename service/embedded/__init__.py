"""Real servers as child processes: an Apache Kafka broker and a schema registry for first use and for tests.

Each runs in a JVM that a small guard process starts and watches (`guard`), so that it ends with its owner even
where the owner is killed. `broker` and `registry` are what others use; `running` is their synchronous twin.
"""
