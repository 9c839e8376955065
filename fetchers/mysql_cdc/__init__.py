"""Change data capture from the binary logs of MySQL and MariaDB."""
