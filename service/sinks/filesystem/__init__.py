"""``FileSystemSink``: topics as files, each record in one of them."""
