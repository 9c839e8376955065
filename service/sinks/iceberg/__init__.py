"""Records as rows of Apache Iceberg tables, each of them once."""
