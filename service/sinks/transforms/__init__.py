"""Transformations of a sink's records, between decoding and putting: columns in, columns out."""
