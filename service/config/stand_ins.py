"""What stands for the refused keys of a config, so that what is right in it can be looked at further all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from fetchers.sdk import ConfigModel, Finding

Model = TypeVar("Model", bound=ConfigModel)


def with_stand_ins(config_class: type[Model], properties: Mapping[str, str]) -> Model | None:
    """The config with the default of every refused key, or its example where it must be given; else None."""
    parsed = config_class.parse(properties)
    if parsed.config is not None:
        return parsed.config
    refused = refused_keys(parsed.findings)
    examples = {key.name: key.extras.example for key in config_class.config_keys() if key.is_required}
    right = {key: value for key, value in properties.items() if key not in refused}
    return config_class.parse(right | {key: examples.get(key) for key in refused}).config


def refused_keys(findings: Iterable[Finding]) -> frozenset[str]:
    """Keys with an error."""
    return frozenset(finding.key for finding in findings if finding.is_error)


def not_about(refused: frozenset[str], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that rest on no refused key: what stands for it there was nobody's wish.

    A finding rests on the keys that it names. Keys of one word are not looked for: sentences are made of such words.
    """
    dotted = "|".join(re.escape(key) for key in sorted(refused) if "." in key)
    named = re.compile(rf"(?<![\w.])(?:{dotted})(?!\.?\w)") if dotted else None
    return tuple(
        finding
        for finding in findings
        if finding.key not in refused and not (named is not None and named.search(finding.message))
    )
