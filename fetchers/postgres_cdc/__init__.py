"""PostgreSQL's log of changes: a consistent snapshot, then what ``pgoutput`` tells, as Debezium's consumers know it."""
