"""Transformations between reading and writing: pure values, what they make of a shape, and the columns that do it."""
