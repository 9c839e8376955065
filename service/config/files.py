"""Reading the files that ``connect-standalone`` reads: Java properties, a flat JSON map, a create request.

Properties follow ``java.util.Properties``: escapes, continuation lines, ``=`` or ``:``, blanks cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import javaproperties

INITIAL_STATES = ("RUNNING", "PAUSED", "STOPPED")
_CONTRACT, _FILE = "contract.schema", "file:"


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
    return read_connector(path).properties


def read_connector(path: Path) -> ConnectorFile:
    """A connector file: its flat map, and a create request's ``initial_state``.

    A contract's file is looked for in the working directory, as by a worker, and then beside the connector's file.
    """
    read = _read(path)
    contract = read.properties.get(_CONTRACT, "").strip()
    named = Path(contract.removeprefix(_FILE))
    if not contract.startswith(_FILE) or named.is_absolute():
        return read
    beside = path.absolute().parent / named
    try:
        if not named.exists() and beside.is_file():
            read.properties[_CONTRACT] = f"{_FILE}{beside}"
    except (OSError, ValueError):
        pass  # no name of a file: whoever reads the contract says so
    return read


def _read(path: Path) -> ConnectorFile:
    try:
        # Editors on Windows put a mark before the text, which would become part of the first key.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}: cannot be read: it is not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise ConfigFileError(message) from error
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigFileError(message) from error
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        return _from_json(text, path)
    try:
        return ConnectorFile(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        message = f"{path}: {error}"
        raise ConfigFileError(message) from error


def _from_json(text: str, path: Path) -> ConnectorFile:
    """Numbers stay the text that they are, as in Connect: neither their size nor their digits matter here."""
    try:
        values = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=_no_constant, object_pairs_hook=_without_doubles
        )
    except (ValueError, RecursionError) as error:
        message = f"{path}: not JSON: {error}"
        raise ConfigFileError(message) from error
    except _DoubledKeyError as error:
        message = f"{path}: the key '{error}' stands there twice"
        raise ConfigFileError(message) from error
    if not isinstance(values, dict):
        message = f"{path}: expected a JSON object"
        raise ConfigFileError(message)
    state = None
    if isinstance(values.get("config"), dict):
        state = _initial_state(values.get("initial_state"), path)
        values = {**values["config"], **({"name": values["name"]} if "name" in values else {})}
    properties = {key: _text(value, key=key, path=path) for key, value in values.items() if value is not None}
    return ConnectorFile(properties, state)


def _initial_state(state: object, path: Path) -> str | None:
    if state is not None and str(state).upper() not in INITIAL_STATES:
        message = f"{path}: Invalid initial_state '{state}': expected one of {', '.join(INITIAL_STATES)}"
        raise ConfigFileError(message)
    return None if state is None else str(state).upper()


def _text(value: object, *, key: str, path: Path) -> str:
    """Booleans become text, as in Connect's REST; anything nested is refused."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        message = f"{path}: the value of '{key}' must be a text, number or boolean"
        raise ConfigFileError(message)
    return str(value)


class _DoubledKeyError(Exception):
    """A key stands twice in one JSON object; which of them was meant is not for us to say."""


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [key for key, _ in pairs]
        raise _DoubledKeyError(next(key for key in values if names.count(key) > 1))
    return values


def _no_constant(name: str) -> object:
    message = f"{name} is no number"
    raise ValueError(message)
