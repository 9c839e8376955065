"""The reference page of all configuration keys, from the config classes that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from fetchers.catalog import PLUGINS, Plugin
from fetchers.sdk.config import ConfigKey
from service.config.connector import SourceConnectorConfig
from service.config.converters import CLASS_NAMES
from service.config.worker import WorkerConfig
from service.docs.borrowed_keys import CONNECTION_KEYS, CONVERTER_KEYS, PRODUCER_KEYS, REGISTRY_KEYS, BorrowedKey
from service.docs.markdown import NOTICE, cell, code, first_paragraph, table
from service.kafka.client import FIXED, WITHOUT_EFFECT

PAGE = """\
{notice}
# Configuration

Files are those of `connect-standalone`: Java properties (escapes, continuation lines, `:` or `=`), or JSON, flat or as
a create request `{{"name": …, "config": {{…}}}}`. All findings of all files are told at once, with exit code 2; a key
that nothing reads is a warning that names the nearest known one. Values of type PASSWORD are shown nowhere.

A name that ends with a dot is a prefix: what follows it is up to you.

## Worker

{worker}
Accepted with any ending: {worker_prefixes}.

## Every source connector

What the worker reads of a connector's config. Kafka Connect's keys have Connect's names and defaults; where a default
or a meaning differs, the text says so.

{connector}
Further prefixes: `contract.rules.<name>` (a Spark SQL boolean expression over the contract's fields),
`topic.creation.default.<setting>` (`partitions`, `replication.factor`, and settings of the topic),
`producer.override.<key>`, `consumer.override.<key>`, `admin.override.<key>`.

{plugins}
## Converters

`key.converter` and `value.converter` take a short word or a class name.

{converters}
Settings after `key.converter.` or `value.converter.`:

{converter_keys}
Settings of `avro`, in the same place:

{registry_keys}
A connector that names no converter inherits the worker's converter with its settings.

## Kafka clients

Connection keys as the worker's own keys; over them the worker's `producer.<key>`, `consumer.<key>`, `admin.<key>`; over
them a connector's `producer.override.<key>` and so on.

{connection_keys}
Producers also read:

{producer_keys}
Fixed, because exactly-once delivery stands on them: {fixed}.

Accepted and without effect here: {without_effect}.
"""


def page() -> str:
    """Return the whole page, Markdown."""
    return PAGE.format(
        notice=NOTICE,
        worker=_keys(WorkerConfig.config_keys()),
        worker_prefixes=_codes(f"{prefix}*" for prefix in WorkerConfig.free_prefixes),
        connector="\n".join(_groups(SourceConnectorConfig.config_keys())),
        plugins="\n".join(_plugin(plugin) for plugin in PLUGINS),
        converters=_converters(),
        converter_keys=_borrowed(CONVERTER_KEYS),
        registry_keys=_borrowed(REGISTRY_KEYS),
        connection_keys=_borrowed(CONNECTION_KEYS),
        producer_keys=_borrowed(PRODUCER_KEYS),
        fixed=_codes(sorted(FIXED)),
        without_effect=_codes(sorted(WITHOUT_EFFECT)),
    )


def _plugin(plugin: Plugin) -> str:
    connector_class = plugin.load()
    names = _codes((plugin.name, *plugin.aliases))
    remarks = [f"`connector.class`: {names}.", f"Payloads are {connector_class.payload_kind.value}."]
    if connector_class.default_dedupe_fields:
        remarks.append(f"`dedupe.fields` unless given: {_codes(connector_class.default_dedupe_fields)}.")
    config_class = connector_class.config_class
    about = cell(first_paragraph(config_class.__doc__))
    tables = "\n".join(_groups(config_class.config_keys()))
    return f"## {plugin.name}\n\n{about} {' '.join(remarks)}\n\n{tables}"


def _groups(keys: Iterable[ConfigKey]) -> list[str]:
    """A table for each group, in the order in which groups first appear; keys without a group come first."""
    listed = sorted(keys, key=lambda key: key.extras.group is not None)
    order = list(dict.fromkeys(key.extras.group for key in listed))
    listed.sort(key=lambda key: order.index(key.extras.group))
    found = []
    for group, members in groupby(listed, key=lambda key: key.extras.group):
        heading = f"### {group}\n\n" if group else ""
        found.append(f"{heading}{_keys(list(members))}")
    return found


def _keys(keys: Sequence[ConfigKey]) -> str:
    rows = [(code(_name(key)), key.kind, _default(key), key.extras.importance.value, _about(key)) for key in keys]
    return table(("key", "type", "default", "importance", "meaning"), rows)


def _name(key: ConfigKey) -> str:
    return f"{key.name}<name>" if key.is_prefix else key.name


def _default(key: ConfigKey) -> str:
    return "required" if key.is_required else code(key.default or "")


def _about(key: ConfigKey) -> str:
    example = f" Example: `{key.extras.example}`." if key.extras.example else ""
    return f"{key.documentation}{example}"


def _converters() -> str:
    words = {kind: [name for name, known in CLASS_NAMES.items() if known is kind] for kind in CLASS_NAMES.values()}
    rows = [(code(kind.value), _codes(names)) for kind, names in words.items()]
    return table(("word", "class names"), rows)


def _borrowed(keys: Iterable[BorrowedKey]) -> str:
    rows = [(code(key.name), code(key.default), key.documentation) for key in keys]
    return table(("key", "default", "meaning"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(code(name) for name in names)
