"""``JdbcSource``: tables and queries of PostgreSQL, MySQL, MariaDB and SQLite, by polling (Confluent's JDBC source)."""
