"""The reference page of all configuration keys, from the config classes that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from fetchers.catalog import PLUGINS, Plugin
from fetchers.sdk.config import ConfigKey, Importance
from service.config.borrowed_keys import (
    ASKED_FOR,
    CONNECTION_KEYS,
    CONSUMER_KEYS,
    CONVERTER_KEYS,
    FIXED_VALUES,
    PRODUCER_KEYS,
    REFUSED,
    REGISTRY_KEYS,
    BorrowedKey,
)
from service.config.connector import SourceConnectorConfig
from service.config.converters import CLASS_NAMES
from service.config.overrides import JAAS_KEY, LOGIN_MODULES
from service.config.providers import BY_DEFAULT
from service.config.sink import SinkConnectorConfig
from service.config.transforms import PREDICATES, TRANSFORMATIONS, AliasConfig, TransformClass
from service.config.worker import WorkerConfig
from service.docs.markdown import NOTICE, cell, code, first_paragraph, table
from service.kafka.client import FIXED, WITHOUT_EFFECT
from service.sinks.catalog import SINKS
from service.spark_source.options import ReadOptions

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
`topic.creation.<group>.<setting>` (`include` and `exclude`, lists of expressions that the whole name must match;
`partitions`, `replication.factor`, −1 for the broker's default; and settings of the topic; the group `default` is
always there), `producer.override.<key>`, `consumer.override.<key>`, `admin.override.<key>`.

{plugins}
## Every sink connector

Kafka Connect's keys, with its names and defaults, and ours in groups of their own. A sink's tasks are members of one
consumer group; they read committed records only, and begin at the earliest where the group has no offset. Offsets are
committed every `offset.flush.interval.ms`, once the sink has said that its records are durable, in a rebalance, and at
a stop. `producer.override.<key>` is for the writer of dead letters.

{sink_connector}
{sinks}
## Transformations and predicates

`transforms` and `predicates` name them in order; each has `transforms.<name>.type` or `predicates.<name>.type`, one of
the classes below, and its own keys in the same place. Records of a source are transformed after their contract has
been met, those of a sink between its converters and the sink itself ([guide](../guides/transformations.md)). Every
transformation also takes:

{alias}
{classes}
## Spark's data source

Options of `spark.read.format("headrace")` and `spark.readStream` besides a connector's own keys
([guide](../guides/spark-data-source.md)). `config.providers…` and `schema.registry.url` mean the same as on a worker.

{spark_source}
## Config providers

`config.providers=file,env` on the worker names providers, `config.providers.<name>.class` says which each is,
`config.providers.<name>.param.<key>` sets it up. A worker whose file has no `config.providers` has
{by_default}. Values of the worker's own properties and of connectors' configs may
then hold variables, several in one value; `$` alone means nothing. The config topic and REST keep the variable, never
the value. What no provider knows, or may read, stays as it was written, as in Connect, with a warning; a connector
file is refused for it by the commands that read one (`standalone`, `preview`, `validate`, `contract infer`), and so is
a preview by REST. A connector cannot bring its own providers.

{providers}
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
What connectors may override is said by `connector.client.config.override.policy`. `All`, `None` and `Principal` are
Connect's; `Allowlist`, the default, allows what `connector.client.config.override.allowlist` names, or without it all
keys but those that touch the worker itself ({asked_for}). No policy allows:

{refused}
Producers also read:

{producer_keys}
Consumers of sinks also read:

{consumer_keys}
Fixed, because exactly-once delivery stands on them: {fixed}.

Accepted and without effect here: {without_effect}.
"""


PROVIDERS = (
    (
        "`FileConfigProvider`",
        "`${file:PATH:KEY}`",
        "`allowed.paths`",
        "A key of a properties file. Paths outside of the allowed ones are not read, links followed.",
    ),
    (
        "`DirectoryConfigProvider`",
        "`${dir:PATH:NAME}`",
        "`allowed.paths`",
        "The content of a file, as secrets are mounted by Kubernetes.",
    ),
    ("`EnvVarConfigProvider`", "`${env:NAME}`", "`allowlist.pattern`", "A variable of the worker's environment."),
)
"""Class, form, parameter and meaning of each (`service.config.provider_sources`)."""


def page() -> str:
    """Return the whole page, Markdown."""
    return PAGE.format(
        notice=NOTICE,
        worker=_keys(WorkerConfig.config_keys()),
        spark_source=_keys(ReadOptions.config_keys()),
        worker_prefixes=_codes(f"{prefix}*" for prefix in WorkerConfig.free_prefixes),
        connector="\n".join(_groups(SourceConnectorConfig.config_keys())),
        plugins="\n".join(_plugin(plugin) for plugin in PLUGINS),
        sink_connector="\n".join(_groups(SinkConnectorConfig.config_keys())),
        sinks="\n".join(_sink(plugin) for plugin in SINKS),
        alias=_keys(AliasConfig.config_keys()),
        classes="\n".join(_classes((*TRANSFORMATIONS, *PREDICATES))),
        by_default=", ".join(f"{code(name)} (`{kind}`)" for name, kind in BY_DEFAULT.items()),
        providers=table(("class", "variable", "parameter", "meaning"), PROVIDERS),
        asked_for=_codes(sorted(ASKED_FOR)),
        refused=table(("key", "because"), ((code(key), reason) for key, reason in _refused())),
        converters=_converters(),
        converter_keys=_borrowed(CONVERTER_KEYS),
        registry_keys=_borrowed(REGISTRY_KEYS),
        connection_keys=_borrowed(CONNECTION_KEYS),
        producer_keys=_borrowed(PRODUCER_KEYS),
        consumer_keys=_borrowed(CONSUMER_KEYS),
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


def _sink(plugin: Plugin) -> str:
    config_class = plugin.load().config_class
    about = cell(first_paragraph(config_class.__doc__))
    tables = "\n".join(_groups(config_class.config_keys()))
    return f"## {plugin.name}\n\n{about} `connector.class`: {_codes((plugin.name, *plugin.aliases))}.\n\n{tables}"


def _classes(classes: Iterable[TransformClass]) -> list[str]:
    """A section for each config class, under the names of all that share it."""
    found = []
    for config_class, members in groupby(classes, key=lambda each: each.config_class):
        names = [each.name for each in members]
        title = names[0].rpartition(".")[2].partition("$")[0]
        about = cell(first_paragraph(config_class.__doc__))
        keys = config_class.config_keys()
        rows = f"\n{_keys(keys)}" if keys else ""
        found.append(f"### {title}\n\n{about} {_codes(names)}.\n{rows}")
    return found


def _refused() -> Iterable[tuple[str, str]]:
    """Keys that no policy allows, and what may be written all the same."""
    for key, reason in sorted(REFUSED.items()):
        allowed = sorted(FIXED_VALUES.get(key, ()))
        yield key, f"{reason}; only {_codes(allowed)} may be written" if allowed else reason
    modules = _codes(sorted(name.rpartition(".")[2] for name in LOGIN_MODULES))
    yield JAAS_KEY, f"with a login module other than {modules}: others could make the worker ask any address"


def _groups(keys: Iterable[ConfigKey]) -> list[str]:
    """A table for each group, in the order in which groups first appear, keys without one first; then by importance."""
    listed = sorted(keys, key=lambda key: key.extras.group is not None)
    order = list(dict.fromkeys(key.extras.group for key in listed))
    listed.sort(key=lambda key: (order.index(key.extras.group), list(Importance).index(key.extras.importance)))
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
