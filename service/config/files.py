"""Reading the files that ``connect-standalone`` reads: Java properties, a flat JSON map, a create request.

Properties follow ``java.util.Properties``: escapes, continuation lines, ``=`` or ``:``, blanks cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import javaproperties

INITIAL_STATES = ("RUNNING", "PAUSED", "STOPPED")


@dataclass(frozen=True, slots=True)
class ConnectorFile:
    """What stands in the file of one connector."""

    properties: dict[str, str]
    initial_state: str | None = None
    """One of ``INITIAL_STATES``."""


class ConfigFileError(Exception):
    """A file that cannot be read as configuration; the message names it and says why."""


def read_properties(path: Path) -> dict[str, str]:
    """A worker or connector file as a flat map; ``.json`` may be a map or ``{"name": …, "config": {…}}``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}: cannot be read: {error}"
        raise ConfigFileError(message) from error
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        return _flat_json(text, path)
    try:
        return javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        message = f"{path}: {error}"
        raise ConfigFileError(message) from error


def read_connector(path: Path) -> ConnectorFile:
    """A connector file: what ``read_properties`` gives, and a create request's ``initial_state``."""
    properties = read_properties(path)
    try:
        request = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return ConnectorFile(properties)
    state = request.get("initial_state") if isinstance(request.get("config"), dict) else None
    if state is not None and str(state).upper() not in INITIAL_STATES:
        message = f"{path}: Invalid initial_state '{state}': expected one of {', '.join(INITIAL_STATES)}"
        raise ConfigFileError(message)
    return ConnectorFile(properties, None if state is None else str(state).upper())


def _flat_json(text: str, path: Path) -> dict[str, str]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{path}: not JSON: {error}"
        raise ConfigFileError(message) from error
    if not isinstance(values, dict):
        message = f"{path}: expected a JSON object"
        raise ConfigFileError(message)
    if isinstance(values.get("config"), dict):
        values = {**values["config"], **({"name": values["name"]} if "name" in values else {})}
    return {key: _text(value, key=key, path=path) for key, value in values.items() if value is not None}


def _text(value: object, *, key: str, path: Path) -> str:
    """Numbers and booleans become text, as in Connect's REST; anything nested is refused."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        message = f"{path}: the value of '{key}' must be a text, number or boolean"
        raise ConfigFileError(message)
    return str(value)
