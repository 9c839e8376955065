"""Where config providers read: property files, folders with a file for each key, the environment.

``org.apache.kafka.common.config.provider`` of Kafka 4.1.1, with one difference: a path is followed through its
symbolic links before it is compared with ``allowed.paths``, so that a link inside does not lead outside.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import javaproperties

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
    """One provider."""

    def read(self, path: str) -> Mapping[str, str]:
        """Everything under a path; nothing where it may not be read. Raises ``ProviderError``."""


@dataclass(frozen=True, slots=True)
class AllowedPaths:
    """Files and folders that may be read; None: all of them."""

    roots: tuple[Path, ...] | None

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> AllowedPaths:
        """Read ``allowed.paths``; raises ``ProviderParameterError``."""
        text = parameters.get(ALLOWED_PATHS, "")
        if not text.strip():
            return cls(None)
        paths = [Path(item.strip()) for item in text.split(",")]
        for path in paths:
            if not path.is_absolute():
                raise ProviderParameterError(ALLOWED_PATHS, f"Path {path} is not absolute")
            if not path.exists():
                raise ProviderParameterError(ALLOWED_PATHS, f"Path {path} does not exist")
        return cls(tuple(path.resolve() for path in paths))

    def permitted(self, text: str) -> Path | None:
        """The path, if it may be read."""
        try:
            path = Path(text).resolve()
        except (OSError, RuntimeError, ValueError):
            return None
        if self.roots is not None and not any(path.is_relative_to(root) for root in self.roots):
            return None
        return path


@dataclass(frozen=True, slots=True)
class FileProvider:
    """``${file:PATH:KEY}``: a key of a properties file."""

    allowed: AllowedPaths

    def read(self, path: str) -> Mapping[str, str]:
        """The file's properties."""
        file = self.allowed.permitted(path) if path else None
        if file is None:
            return {}
        try:
            # A mark that editors on Windows put before the text would become part of the first key.
            return javaproperties.loads(_text_of(file).removeprefix("\ufeff"))
        except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
            raise ProviderError(f"Could not read properties from file {path}: {_why(error)}") from error


@dataclass(frozen=True, slots=True)
class DirectoryProvider:
    """``${dir:PATH:NAME}``: the content of the file of that name."""

    allowed: AllowedPaths

    def read(self, path: str) -> Mapping[str, str]:
        """The folder's files by their names."""
        folder = self.allowed.permitted(path) if path else None
        if folder is None or not folder.is_dir():
            return {}
        return _Folder(folder, self.allowed)


class _Folder(Mapping[str, str]):
    """Files are read when they are asked for: the others may be large, or none of ours."""

    def __init__(self, folder: Path, allowed: AllowedPaths) -> None:
        self._folder = folder
        self._allowed = allowed

    def __getitem__(self, name: str) -> str:
        file = self._allowed.permitted(str(self._folder / name)) if name and Path(name).name == name else None
        if file is None or not file.is_file():
            raise KeyError(name)
        try:
            return _text_of(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ProviderError(f"Could not read file {name} from directory {self._folder}: {_why(error)}") from error

    def __iter__(self) -> Iterator[str]:
        return (file.name for file in self._folder.iterdir() if file.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class EnvironmentProvider:
    """``${env:NAME}``: a variable of the worker's environment."""

    values: Mapping[str, str]

    def read(self, path: str) -> Mapping[str, str]:
        """The variables; there are no paths here."""
        if path:
            raise ProviderError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return self.values


def _environment(parameters: Mapping[str, str], environ: Mapping[str, str]) -> Provider:
    text = parameters.get(ALLOWLIST, "").strip()
    try:
        pattern = re.compile(text or ".*", re.DOTALL)
    except re.error as error:
        raise ProviderParameterError(ALLOWLIST, f"Invalid regex: {error}") from error
    return EnvironmentProvider({name: value for name, value in environ.items() if pattern.fullmatch(name)})


CLASSES: Mapping[str, Callable[[Mapping[str, str], Mapping[str, str]], Provider]] = {
    "FileConfigProvider": lambda parameters, _: FileProvider(AllowedPaths.parse(parameters)),
    "DirectoryConfigProvider": lambda parameters, _: DirectoryProvider(AllowedPaths.parse(parameters)),
    "EnvVarConfigProvider": _environment,
}
"""By the simple name of Kafka's class: from the provider's parameters and the worker's environment."""


def _text_of(file: Path) -> str:
    if not stat.S_ISREG(file.stat().st_mode):
        # A pipe would keep whoever opens it waiting.
        message = "not a regular file"
        raise OSError(message)
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        message = f"larger than {FILE_BYTES_MAX} bytes"
        raise OSError(message)
    return content.decode()


def _why(error: Exception) -> str:
    """Without what stands in the file."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not a properties file"
