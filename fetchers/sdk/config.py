"""Config classes: parser, default, documentation, validation and masking in one.

A field's annotation is its type, its default its default, the docstring below it its documentation. The Kafka
Connect key is the field's name with ``_`` as ``.`` (``poll_interval_ms`` is ``poll.interval.ms``), or its alias.
The texts of findings are those of Kafka's ``ConfigDef`` (KIP-26), because clients match on them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

HIDDEN = "[hidden]"
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")

Secret = SecretStr
"""A value that is shown nowhere; ``.get_secret_value()`` where it is used."""


class Importance(StrEnum):
    """How much a key matters, as in ConfigDef."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Severity(StrEnum):
    """What a finding does: an error refuses the config, a warning is only said."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Key:
    """Extras of a config key, given in ``Annotated[type, Key(...)]``."""

    importance: Importance = Importance.MEDIUM
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str | None = None
    dependents: tuple[str, ...] = ()
    recommended: tuple[str, ...] = ()
    kind: str | None = None
    """ConfigDef type, when it does not follow from the annotation."""
    null_reason: str | None = None
    """What the key's check says to a missing value, when that does not follow from the annotation."""
    is_path: bool = False
    """Whether the value names a file, or files by a pattern: the worker says which may be named."""
    example: str | None = None
    """Shown in the reference. It stands for a required key that is refused, while other keys are looked at further."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key as clients, reference pages and masking see it."""

    name: str
    kind: str
    """ConfigDef type: BOOLEAN STRING INT LONG DOUBLE LIST CLASS PASSWORD."""
    is_required: bool
    default: str | None
    documentation: str
    extras: Key = field(default_factory=Key)
    is_prefix: bool = False
    """Whether ``name`` (which then ends with a dot) is the beginning of any number of keys."""
    null_reason: str | None = None
    """What the key's own check says where there is no value to check; None where it lets that pass."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or odd, with a config."""

    key: str
    value: str | None
    """The value seen, masked; None when there is none."""
    message: str
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        """Whether the config is refused for it."""
        return self.severity is Severity.ERROR


def _boolean(value: object) -> object:
    """``true`` or ``false`` in any case, nothing else (ConfigDef.Type.BOOLEAN)."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in {"true", "false"}:
            return text == "true"
        message = "Expected value to be either true or false"
        raise ValueError(message)
    return value


def _names(text: str) -> tuple[str, ...]:
    """Comma-separated text; blanks around commas are cut, blanks inside an item stay; empty text = empty list."""
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def _name_list(value: object) -> object:
    return _names(value) if isinstance(value, str) else value


def _iso_date(value: object) -> object:
    """``yyyy-mm-dd`` and nothing that merely looks like a date."""
    if isinstance(value, str):
        try:
            if len(value) == len("2016-03-22"):
                return date.fromisoformat(value)
        except ValueError:
            pass
        message = "Expected a date as yyyy-mm-dd"
        raise ValueError(message)
    return value


def _is_map(annotation: Any) -> bool:
    return get_origin(annotation) is Mapping


def _http_url(value: object) -> object:
    """An absolute http(s) URL."""
    if isinstance(value, str) and not value.startswith(("http://", "https://")):
        message = "Expected a URL that starts with http:// or https://"
        raise ValueError(message)
    return value


def _any_case(value: object, read: ValidatorFunctionWrapHandler) -> object:
    if not isinstance(value, str):
        return read(value)
    for text in (value.upper(), value.lower()):
        try:
            return read(text)
        except ValidationError:
            continue
    return read(value)


Boolean = Annotated[bool, BeforeValidator(_boolean)]
AnyCase = WrapValidator(_any_case)
"""In ``Annotated[Literal["A", "B"], AnyCase]``: choices that are also taken in the other case."""
NameList = Annotated[tuple[str, ...], BeforeValidator(_name_list)]
IsoDate = Annotated[date, BeforeValidator(_iso_date)]
HttpUrl = Annotated[str, BeforeValidator(_http_url)]
TextMap = Mapping[str, str]
"""All keys under the field's own, such as ``http.query.<name>``, by what follows the prefix."""
SecretMap = Mapping[str, SecretStr]
"""The same, with values that are shown nowhere."""

P = TypeVar("P", bound="ConfigModel")


@dataclass(frozen=True, slots=True)
class ParsedConfig(Generic[P]):
    """A config, or why there is none. ``config`` is None exactly when a finding is an error."""

    config: P | None
    findings: tuple[Finding, ...]


class ConfigModel(BaseModel):
    """Base of all config classes: frozen, made from a flat map of texts."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        populate_by_name=False,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        alias_generator=lambda name: name.replace("_", "."),
    )
    free_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes under which any key is known, such as ``http.header.``; those of map fields are added by themselves."""
    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Keys of another product's connector that change what it does, and that this one does not have.

    They are refused, but for an empty value and for these, in any case, with which they change nothing.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Make the prefixes of map fields known, and give a field that is declared anew what it does not say itself.

        So ``poll_interval_ms: int = 60_000`` is another default, with the range and the text of the base's field.
        """
        super().__pydantic_init_subclass__(**kwargs)
        base = next(each for each in cls.__mro__[1:] if issubclass(each, ConfigModel))
        anew = [name for name in cls.__annotations__ if name in base.model_fields and name in cls.model_fields]
        for own, inherited in ((cls.model_fields[name], base.model_fields[name]) for name in anew):
            own.description = own.description or inherited.description
            if own.annotation == inherited.annotation and not own.metadata:
                own.metadata = [*inherited.metadata]
        if anew:
            cls.model_rebuild(force=True)
        cls.free_prefixes = tuple(dict.fromkeys((*cls.free_prefixes, *cls._map_prefixes())))

    @classmethod
    def _map_prefixes(cls) -> tuple[str, ...]:
        return tuple(f"{info.alias or name}." for name, info in cls.model_fields.items() if _is_map(info.annotation))

    @classmethod
    def parse(cls, properties: Mapping[str, str | None]) -> ParsedConfig[Self]:
        """Read a flat map. All findings at once; values masked where the key is a secret."""
        texts = {key: value.strip() for key, value in properties.items() if value is not None}
        maps = {
            prefix[:-1]: {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
            for prefix in cls._map_prefixes()
        }
        try:
            return ParsedConfig(cls.model_validate(texts | maps), ())
        except ValidationError as error:
            keys = {key.name: key for key in cls.config_keys()}
            return ParsedConfig(None, tuple(_finding(detail, texts, keys) for detail in error.errors()))

    @classmethod
    def config_keys(cls) -> tuple[ConfigKey, ...]:
        """Definitions of every key, in the order of the fields."""
        return _config_keys(cls)

    def texts(self) -> dict[str, str]:
        """Every value in ConfigDef's text form, secrets as ``[hidden]``."""
        found: dict[str, str] = {}
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if _is_map(info.annotation):
                found |= {f"{info.alias or name}.{key}": _text(item) for key, item in value.items()}
            elif value is not None:
                found[info.alias or name] = _text(value)
        return found


class FetcherConfig(ConfigModel):
    """Base of fetchers' config classes: what every source has."""

    topic: Annotated[str, Field(min_length=1), Key(importance=Importance.HIGH, example="orders")]
    """Topic that the records go to."""
    poll_interval_ms: Annotated[int, Field(ge=1), Key(importance=Importance.LOW, group="Polling", order=1)] = 5_000
    """Milliseconds between two questions to the source when it has nothing new."""

    @property
    def poll_interval(self) -> float:
        """``poll.interval.ms`` in seconds, as clocks and the HTTP client take it."""
        return self.poll_interval_ms / 1000


class TopicsConfig(FetcherConfig):
    """Base of config classes of sources without the key ``topic``: each of their pages names its topic itself."""

    topic: ClassVar[str] = ""  # type: ignore[misc]


def unknown_keys(
    properties: Iterable[str], known: Iterable[str], *, free_prefixes: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """A warning for each key nothing reads, naming the nearest known one."""
    names = sorted(set(known))
    prefixes = tuple(free_prefixes)
    strangers = [key for key in properties if key not in names and not key.startswith(prefixes)]
    return tuple(Finding(key, None, _nearest(key, names), Severity.WARNING) for key in strangers)


def _without_credentials(value: str) -> str:
    """The value without the user and password that a URL in it may carry."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", value)


def _nearest(key: str, names: list[str]) -> str:
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"Unknown key; did you mean '{close[0]}'?" if close else "Unknown key; nothing reads it."


def _finding(detail: ErrorDetails, texts: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> Finding:
    key = str(detail["loc"][0]) if detail["loc"] else ""
    definition = keys.get(key)
    if detail["type"] == "missing":
        return Finding(key, None, f'Missing required configuration "{key}" which has no default value.')
    is_secret = definition is not None and definition.kind == "PASSWORD"
    seen = HIDDEN if is_secret else _without_credentials(texts[key]) if key in texts else None
    kind = definition.kind if definition else "STRING"
    reason = _reason(detail, kind)
    told = f"[{', '.join(_names(seen))}]" if kind == "LIST" and seen is not None else seen
    return Finding(key, seen, f"Invalid value {told} for configuration {key}: {reason}")


def _reason(detail: ErrorDetails, kind: str) -> str:
    context = detail.get("ctx", {})
    texts = {
        "int_parsing": f"Not a number of type {kind}",
        "int_from_float": f"Not a number of type {kind}",
        "float_parsing": f"Not a number of type {kind}",
        "greater_than_equal": f"Value must be at least {context.get('ge')}",
        "greater_than": f"Value must be greater than {context.get('gt')}",
        "less_than_equal": f"Value must be no more than {context.get('le')}",
        "literal_error": f"String must be one of: {str(context.get('expected', '')).replace(chr(39), '')}",
        "enum": f"String must be one of: {str(context.get('expected', '')).replace(chr(39), '')}",
        "string_too_short": "String must be non-empty",
    }
    if detail["type"] == "value_error":
        return str(context.get("error", detail["msg"]))
    return texts.get(detail["type"], detail["msg"]).replace(" or ", ", ")


@cache
def _config_keys(config_class: type[ConfigModel]) -> tuple[ConfigKey, ...]:
    """Made once: every validation asks for them."""
    return tuple(_config_key(name, info) for name, info in config_class.model_fields.items())


def _config_key(name: str, info: FieldInfo) -> ConfigKey:
    extras = next((item for item in info.metadata if isinstance(item, Key)), Key())
    is_prefix = _is_map(info.annotation)
    default = None if is_prefix or info.default in (PydanticUndefined, None) else _text(info.default)
    return ConfigKey(
        name=f"{info.alias or name}." if is_prefix else info.alias or name,
        kind=extras.kind or _kind(info.annotation, name),
        is_required=info.is_required(),
        default=default,
        documentation=info.description or "",
        extras=extras,
        is_prefix=is_prefix,
        null_reason=extras.null_reason or _null_reason(info),
    )


def _null_reason(info: FieldInfo) -> str | None:
    """As ConfigDef: a range and a choice refuse null, also where the value was already found to be no number."""
    if type(None) in get_args(info.annotation):
        return None
    if any(isinstance(item, Ge | Gt | Le | Lt) for item in info.metadata):
        return "Value must be non-null"
    if get_origin(info.annotation) is Literal:
        return f"String must be one of: {', '.join(map(str, get_args(info.annotation)))}"
    return None


def _kind(annotation: Any, name: str) -> str:
    """ConfigDef's type of an annotation; ``X | None`` is X."""
    options = [option for option in get_args(annotation) if option is not type(None)]
    origin = get_origin(annotation)
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return "STRING"
    if origin is tuple:
        return "LIST"
    if origin is Mapping:
        return _kind(options[-1], name)
    if options and origin is not None:
        return _kind(options[0], name)
    whole_number = "LONG" if name.endswith(("_ms", "_bytes", "_bytes_max")) else "INT"
    kinds: dict[Any, str] = {bool: "BOOLEAN", int: whole_number, float: "DOUBLE", SecretStr: "PASSWORD"}
    return kinds.get(annotation, "STRING")


def _text(value: object) -> str:
    """ConfigDef's text form of a value."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
