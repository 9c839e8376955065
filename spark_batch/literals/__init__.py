"""Numbers and texts as they are written in JSON, and as Java writes them: below the exact path and transformations."""
