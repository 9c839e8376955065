"""``S3Sink``: topics as objects of a bucket, each record in one of them."""
