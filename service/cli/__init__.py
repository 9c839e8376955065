"""The command line: one word for each errand."""
