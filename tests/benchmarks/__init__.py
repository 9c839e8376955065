"""Figures of headrace beside those of its peer, measured in one run on one machine: ``./headrace bench``."""
