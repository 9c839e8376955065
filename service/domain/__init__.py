"""The words of the runtime as values: ids, states and their legal transitions, errors by recovery."""
