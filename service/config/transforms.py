"""Transformations and predicates by their names in Kafka Connect, with a config class for the keys of each.

The keys, and what a transformation does, are declared in one file each, below `spark_batch/transforms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from fetchers.sdk import Boolean, ConfigModel, Importance, Key, NameList
from spark_batch.transforms import catalog
from spark_batch.transforms.form import FormKey, KeyKind
from spark_batch.transforms.java_pattern import pattern_doubt

PACKAGE = "org.apache.kafka.connect.transforms"
_NO_REGEX = "Invalid regex: there is none"


def _regex(pattern: str) -> str:
    doubt = pattern_doubt(pattern)
    if doubt is not None:
        message = f"Invalid regex: {doubt}"
        raise ValueError(message)
    return pattern


def _filled(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        message = "Empty list"
        raise ValueError(message)
    return names


class AliasConfig(ConfigModel):
    """What every transformation takes besides its own keys."""

    predicate: str | None = None
    """Name of the predicate that says which records are transformed; all of them when not given."""
    negate: Boolean = False
    """Whether the predicate is to be false instead."""


@dataclass(frozen=True, slots=True)
class TransformClass:
    """A transformation or predicate that can be configured."""

    name: str
    """The Java class, in full."""
    config_class: type[ConfigModel]
    form: Any
    """The class of `spark_batch.transforms.catalog` that it is made into."""

    @property
    def removed_keys(self) -> Mapping[str, str]:
        """Keys that older versions of the class had, and which one has taken the place of each: refused."""
        found: Mapping[str, str] = getattr(self.form, "REMOVED_KEYS", {})
        return found

    def answers_to(self, name: str) -> bool:
        """Whether ``type=name`` means it: in full, or by the simple name where that is no inner class of Connect's."""
        is_short = "$" not in self.name or not self.name.startswith("org.")
        return name == self.name or (is_short and name == self.name.rpartition(".")[2])


class _DeclaredKeys(ConfigModel, use_attribute_docstrings=False):
    """Base of the made config classes.

    Their keys bring their descriptions, and pydantic's search for the source of a class that has none takes 30 ms each.
    """


def _config_class(form: Any) -> type[ConfigModel]:
    fields: dict[str, Any] = {key.name.replace(".", "_"): _declared(key) for key in form.KEYS}
    made: type[ConfigModel] = create_model(f"{form.NAME}Config", __base__=_DeclaredKeys, __doc__=form.ABOUT, **fields)
    return made


def _declared(key: FormKey) -> tuple[Any, Any]:
    """A key as pydantic has it: annotation and field."""
    importance = Importance.HIGH if key.is_important else Importance.LOW if key.is_slight else Importance.MEDIUM
    plain: Any = str if key.is_required else str | None
    annotations: dict[KeyKind, Any] = {
        KeyKind.TEXT: Annotated[plain, Key(importance)],
        KeyKind.NAME: Annotated[str, Field(min_length=1), Key(importance)],
        KeyKind.BOOLEAN: Annotated[Boolean, Key(importance)],
        KeyKind.CHOICE: Annotated[Literal[key.choices or ("",)], Key(importance)],
        KeyKind.FILLED: Annotated[Annotated[str, Field(min_length=1)] | None, Key(importance)],
        KeyKind.NAMES: Annotated[NameList, AfterValidator(_filled) if key.is_required else None, Key(importance)],
        KeyKind.INTEGER: Annotated[int | None, Key(importance)],
        KeyKind.PATTERN: Annotated[str, AfterValidator(_regex), Key(importance, null_reason=_NO_REGEX)],
    }
    default: Any = ... if key.is_required else key.default
    return annotations[key.kind], Field(default, description=key.about)


def _transform_classes(form: Any, package: str, suffixes: Iterable[str]) -> tuple[TransformClass, ...]:
    """One for each suffix of the Java class's name; they share a config class."""
    config_class = _config_class(form)
    package = getattr(form, "PACKAGE", package)
    return tuple(TransformClass(f"{package}.{form.NAME}{suffix}", config_class, form) for suffix in suffixes)


TRANSFORMATIONS: tuple[TransformClass, ...] = (
    *(known for form in catalog.RESHAPINGS for known in _transform_classes(form, PACKAGE, ("$Key", "$Value"))),
    *_transform_classes(catalog.HeaderFrom, PACKAGE, ("$Key", "$Value")),
    *_transform_classes(catalog.Sql, PACKAGE, ("", "$Key", "$Value")),
    *(known for form in catalog.WHOLE for known in _transform_classes(form, PACKAGE, ("",))),
)
PREDICATES: tuple[TransformClass, ...] = tuple(
    known for form in catalog.PREDICATES for known in _transform_classes(form, f"{PACKAGE}.predicates", ("",))
)


def find_class(name: str, classes: Iterable[TransformClass]) -> TransformClass | None:
    """The class that ``type=name`` means."""
    return next((known for known in classes if known.answers_to(name)), None)
