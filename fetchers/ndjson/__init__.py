"""Endless HTTP bodies of JSON texts, by lines or by lengths."""
