"""``ElasticsearchSink``: documents for Elasticsearch and OpenSearch, written in bulk."""
