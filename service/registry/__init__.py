"""Schemas under numbers: what a Confluent-compatible schema registry is asked, and how it is found."""

from __future__ import annotations

from service.registry.client import RegisteredSchema, RegistryClient
from service.registry.errors import (
    IncompatibleSchema,
    RegistryFailure,
    RegistryFatal,
    RegistryRetriable,
    SchemaNotFound,
    UnusableSchema,
)
from service.registry.settings import RegistrySettings
from service.registry.subjects import SubjectStrategy

__all__ = [
    "IncompatibleSchema",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryFailure",
    "RegistryFatal",
    "RegistryRetriable",
    "RegistrySettings",
    "SchemaNotFound",
    "SubjectStrategy",
    "UnusableSchema",
]
