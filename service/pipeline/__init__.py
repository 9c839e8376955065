"""The flow of one source task: fetch → queue → micro-batch → convert → deliver.

A stage is a file: ``fetching``, ``queue``, ``batching``, ``polling``, ``converting``, ``delivering``;
``task`` wires them and reads as their summary.
"""
