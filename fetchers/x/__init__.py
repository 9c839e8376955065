"""X (Twitter): the filtered stream of API v2, its rules, and recovery of what was said while nobody listened."""
