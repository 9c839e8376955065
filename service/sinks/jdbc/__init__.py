"""``JdbcSink``: topics into tables of PostgreSQL, MySQL, MariaDB and SQLite."""
