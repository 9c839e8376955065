"""What went wrong with the registry, sorted by what the caller can do about it.

```
RegistryFailure
├── RegistryRetriable      no URL answered in time, or the registry is ill: ask again later
└── RegistryFatal          the same question gets the same answer: someone has to change something
    ├── IncompatibleSchema the subject's compatibility level refuses the schema
    ├── SchemaNotFound     no such subject, version or id
    └── UnusableSchema     the schema is there, and is not one that records can be read or written by
```
"""

from __future__ import annotations


class RegistryFailure(Exception):
    """Any failure of the registry."""


class RegistryRetriable(RegistryFailure):
    """Unreachable, overloaded or broken for now."""


class RegistryFatal(RegistryFailure):
    """Refused: credentials, an invalid schema, an answer that is none of a registry."""


class IncompatibleSchema(RegistryFatal):
    """The message holds the registry's own reasons, where it gives any."""


class SchemaNotFound(RegistryFatal):
    """The subject, version or id does not exist."""


class UnusableSchema(RegistryFatal):
    """The registry gives the schema, which is not Avro or refers to other schemas."""
