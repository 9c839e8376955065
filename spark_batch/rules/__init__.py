"""The rules of contracts: Spark SQL text from a config, judged before Spark sees it, then made columns."""
