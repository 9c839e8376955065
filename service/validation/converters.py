"""The converters of a config: their classes in the three keys, and the settings under each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fetchers.sdk import ConfigModel
from service.config.converters import (
    AvroConverterConfig,
    BytesConverterConfig,
    JsonConverterConfig,
    NumberConverterConfig,
    SimpleHeaderConverterConfig,
    StringConverterConfig,
)
from service.config.transforms import PREDICATES, TRANSFORMATIONS
from service.validation.connectors import known_connectors
from service.validation.entries import ClassLookup, Entries, Place
from service.validation.versions import CONNECT_VERSION
from spark_batch.number_forms import NUMBER_FORMS


@dataclass(frozen=True, slots=True)
class ConverterClass:
    """A converter that can be named."""

    name: str
    word: str | None
    """Our short word for it."""
    config_class: type[ConfigModel]

    def answers_to(self, name: str) -> bool:
        """By full name, simple name, simple name without ``Converter``, or word."""
        simple = self.name.rpartition(".")[2]
        return name in {self.name, simple, simple.removesuffix("Converter"), self.word}


_JSON = ConverterClass("org.apache.kafka.connect.json.JsonConverter", "json", JsonConverterConfig)
_STRING = ConverterClass("org.apache.kafka.connect.storage.StringConverter", "string", StringConverterConfig)
_BYTES = ConverterClass("org.apache.kafka.connect.converters.ByteArrayConverter", "bytes", BytesConverterConfig)
_AVRO = ConverterClass("io.confluent.connect.avro.AvroConverter", "avro", AvroConverterConfig)
_SIMPLE = ConverterClass("org.apache.kafka.connect.storage.SimpleHeaderConverter", None, SimpleHeaderConverterConfig)
_NUMBERS = tuple(ConverterClass(form.class_name, word, NumberConverterConfig) for word, form in NUMBER_FORMS.items())
CONVERTERS = tuple(sorted((_AVRO, _BYTES, _JSON, _STRING, *_NUMBERS), key=lambda known: known.name))
HEADER_CONVERTERS = tuple(sorted((_BYTES, _JSON, _SIMPLE, _STRING, *_NUMBERS), key=lambda known: known.name))


@dataclass(frozen=True, slots=True)
class Side:
    """A place where a converter is named: for keys, for values or for headers of records."""

    word: str
    classes: tuple[ConverterClass, ...]
    interface: str

    @property
    def key(self) -> str:
        """The key that names the converter."""
        return f"{self.word}.converter"

    def find(self, name: str) -> ConverterClass | None:
        """The converter of that name."""
        return next((known for known in self.classes if known.answers_to(name)), None)

    def full_name(self, name: str) -> str | None:
        """As values are shown: classes in full, our short words as they are; names of other things in full too."""
        found = self.find(name)
        if found is not None:
            return name if name == found.word else found.name
        return _other_class(name)


SIDES = (
    Side("key", CONVERTERS, "Converter"),
    Side("value", CONVERTERS, "Converter"),
    Side("header", HEADER_CONVERTERS, "HeaderConverter"),
)


def class_lookups() -> dict[str, ClassLookup]:
    """How the names in the three keys are looked up."""
    return {side.key: side.full_name for side in SIDES}


def complete_converters(entries: Entries, properties: Mapping[str, str], worker: Mapping[str, str]) -> None:
    """Defaults, recommended classes and versions of the three keys; then the settings of those the config names."""
    for side in SIDES:
        _complete_class(entries, properties, worker, side)
    for side in SIDES:
        found = side.find(properties.get(side.key, "").strip())
        if found is not None:
            add_settings(entries, properties, side, found)


def add_settings(entries: Entries, properties: Mapping[str, str], side: Side, converter: ConverterClass) -> None:
    """The keys under the converter's prefix; each counts one error at most."""
    prefix = f"{side.key}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    keys = converter.config_class.config_keys()
    typed = {"converter.type": side.word, **own} if any(key.name == "converter.type" for key in keys) else own
    findings = converter.config_class.parse(typed).findings
    entries.add(keys, typed, findings, place=Place(prefix, has_own_names=True, is_counted_once=True))


def _complete_class(entries: Entries, properties: Mapping[str, str], worker: Mapping[str, str], side: Side) -> None:
    entry, version = entries.by_name[side.key], entries.by_name[f"{side.key}.plugin.version"]
    entry.recommended = tuple(known.name for known in side.classes)
    if entry.definition is not None:
        given = worker.get(side.key, "").strip()
        default = side.full_name(given) or given or None
        entry.definition = replace(entry.definition, default_value=default)
        entry.value = entry.value if side.key in properties else default
    other = _other_class(entry.value or "")
    if other is not None and side.find(other) is None:
        entry.errors[:] = [f"Class class {other} does not implement the {side.interface} interface"]
    is_known = side.find(entry.value or "") is not None
    version.is_visible = entry.value is not None
    if is_known and version.definition is not None:
        version.definition = replace(version.definition, default_value=CONNECT_VERSION)
        version.recommended = (CONNECT_VERSION,)
        if f"{side.key}.plugin.version" not in properties:
            version.value = CONNECT_VERSION


def _other_class(name: str) -> str | None:
    """A class that is there but may be no converter."""
    names = (
        *(known.name for known in (*CONVERTERS, *HEADER_CONVERTERS)),
        *(known.name for known in (*TRANSFORMATIONS, *PREDICATES)),
        *(known.class_name for known in known_connectors()),
    )
    return name if name in names else None
