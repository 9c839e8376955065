"""Lines of files: one file or many, growing, rotated, truncated or gzipped; standard input without any."""
