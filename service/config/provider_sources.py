"""Where config providers read: property files, folders with a file for each key, the environment.

``org.apache.kafka.common.config.provider`` of Kafka 4.1.1, with one difference: a path is followed through its
symbolic links before it is compared with ``allowed.paths``, so that a link inside does not lead outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import javaproperties

from fetchers.sdk.reach import PATHS_KEY, AllowedPaths, PathRefusedError
from service.config.reach import ConnectorReach

ALLOWED_PATHS, ALLOWLIST = "allowed.paths", "allowlist.pattern"
FILE_BYTES_MAX = 1 << 20
"""Of a file that holds settings; a larger one is something else, named by mistake."""


class ProviderError(Exception):
    """A provider that could not be asked; the text names no value."""


class ProviderParameterError(ValueError):
    """A parameter of a provider that cannot be used."""

    def __init__(self, parameter: str, message: str) -> None:
        """Which one, and why."""
        super().__init__(message)
        self.parameter = parameter


class Provider(Protocol):
    """Gives values for variables of configs; made once for a worker, from the parameters in its config."""

    def read(self, path: str) -> Mapping[str, str]:
        """Everything under a path; nothing where it may not be read. Raises ``ProviderError``."""

    def lent(self, reach: ConnectorReach) -> Provider:
        """The same for variables of connectors' configs."""


def _allowed_paths(parameters: Mapping[str, str]) -> AllowedPaths:
    """Files and folders; every path where none is given. Raises ``ProviderParameterError``."""
    text = parameters.get(ALLOWED_PATHS, "")
    if not text.strip():
        return AllowedPaths()
    paths = [Path(item.strip()) for item in text.split(",")]
    for path in paths:
        if not path.is_absolute():
            raise ProviderParameterError(ALLOWED_PATHS, f"Path {path} is not absolute")
        if not path.exists():
            raise ProviderParameterError(ALLOWED_PATHS, f"Path {path} does not exist")
    return AllowedPaths(tuple(map(str, paths)))


def _lent_paths(own: AllowedPaths, reach: ConnectorReach) -> AllowedPaths:
    return reach.paths if own.roots is None else own


def _demand_some(allowed: AllowedPaths) -> None:
    """Connect reads nothing where it may not; where a worker bounds nothing yet, that would be a riddle."""
    if allowed.roots == ():
        raise ProviderError(
            f"Connectors may read no files by config providers here: name them in {PATHS_KEY} of the worker, or in "
            f"config.providers.<name>.param.{ALLOWED_PATHS}"
        )


@dataclass(frozen=True, slots=True)
class FileProvider:
    """``${file:PATH:KEY}``: a key of a properties file."""

    allowed: AllowedPaths

    def read(self, path: str) -> Mapping[str, str]:
        """Keys and values of the properties file at ``path``."""
        _demand_some(self.allowed)
        if not path or self.allowed.refusal(path) is not None:
            return {}
        try:
            # A mark that editors on Windows put before the text would become part of the first key.
            return javaproperties.loads(_text_of(path, self.allowed).removeprefix("\ufeff"))
        except (OSError, PathRefusedError, ValueError) as error:
            raise ProviderError(f"Could not read properties from file {path}: {_why(error)}") from error

    def lent(self, reach: ConnectorReach) -> FileProvider:
        """The same within the worker's bounds, where the provider has none of its own."""
        return FileProvider(_lent_paths(self.allowed, reach))


@dataclass(frozen=True, slots=True)
class DirectoryProvider:
    """``${dir:PATH:NAME}``: the content of the file of that name."""

    allowed: AllowedPaths

    def read(self, path: str) -> Mapping[str, str]:
        """The folder's files by their names."""
        _demand_some(self.allowed)
        if not path or self.allowed.refusal(path) is not None or not Path(path).is_dir():
            return {}
        return _Folder(Path(path), self.allowed)

    def lent(self, reach: ConnectorReach) -> DirectoryProvider:
        """The same within the worker's bounds, where the provider has none of its own."""
        return DirectoryProvider(_lent_paths(self.allowed, reach))


class _Folder(Mapping[str, str]):
    """Files are read when they are asked for: the others may be large, or none of ours."""

    def __init__(self, folder: Path, allowed: AllowedPaths) -> None:
        self._folder = folder
        self._allowed = allowed

    def __getitem__(self, name: str) -> str:
        file = self._folder / name
        is_here = bool(name) and Path(name).name == name and name != os.pardir
        if not is_here or self._allowed.refusal(file) is not None or not file.is_file():
            raise KeyError(name)
        try:
            return _text_of(file, self._allowed)
        except (OSError, PathRefusedError, ValueError) as error:
            raise ProviderError(f"Could not read file {name} from directory {self._folder}: {_why(error)}") from error

    def __iter__(self) -> Iterator[str]:
        return (file.name for file in self._folder.iterdir() if file.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class EnvironmentProvider:
    """``${env:NAME}``: a variable of the worker's environment."""

    values: Mapping[str, str]
    is_chosen: bool = True
    """Whether the worker's config chooses them, by ``allowlist.pattern``."""

    def read(self, path: str) -> Mapping[str, str]:
        """The variables; there are no paths here."""
        if path:
            raise ProviderError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return self.values

    def lent(self, reach: ConnectorReach) -> Provider:
        """Beyond one's own machine only what was chosen: the environment may hold the worker's own secrets."""
        return self if self.is_chosen or reach.is_local else _ClosedEnvironment()


class _ClosedEnvironment:
    def read(self, path: str) -> Mapping[str, str]:
        del path
        raise ProviderError(
            "Connectors may read no variables of the environment here: choose them by "
            f"config.providers.<name>.param.{ALLOWLIST}"
        )

    def lent(self, reach: ConnectorReach) -> _ClosedEnvironment:
        del reach
        return self


def _environment(parameters: Mapping[str, str], environ: Mapping[str, str]) -> Provider:
    text = parameters.get(ALLOWLIST, "").strip()
    try:
        pattern = re.compile(text or ".*", re.DOTALL)
    except re.error as error:
        raise ProviderParameterError(ALLOWLIST, f"Invalid regex: {error}") from error
    chosen = {name: value for name, value in environ.items() if pattern.fullmatch(name)}
    return EnvironmentProvider(chosen, is_chosen=bool(text))


CLASSES: Mapping[str, Callable[[Mapping[str, str], Mapping[str, str]], Provider]] = {
    "FileConfigProvider": lambda parameters, _: FileProvider(_allowed_paths(parameters)),
    "DirectoryConfigProvider": lambda parameters, _: DirectoryProvider(_allowed_paths(parameters)),
    "EnvVarConfigProvider": _environment,
}
"""By the simple name of Kafka's class: from the provider's parameters and the worker's environment."""


def _text_of(file: str | Path, allowed: AllowedPaths) -> str:
    return allowed.read(file, bytes_max=FILE_BYTES_MAX).decode()


def _why(error: Exception) -> str:
    """Without what stands in the file."""
    if isinstance(error, PathRefusedError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not a properties file"
