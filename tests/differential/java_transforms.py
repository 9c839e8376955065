"""Kafka Connect's own transformations and predicates, and Debezium's, in a small JVM without worker and broker.

Records go through JsonConverter, a chain of transformations, and JsonConverter again. All records of a chain are one
request, so that thousands of them take a second. The JVM ends with this process: it reads the end of its input.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.embedded.jars import class_path, java_program

PACKAGE = "org.apache.kafka.connect.transforms."
PROGRAM = Path(__file__).parent / "java" / "Transforms.java"
needs_compiler = pytest.mark.skipif(not shutil.which("javac"), reason="needs javac, the compiler of a JDK")


@dataclass(frozen=True)
class JavaStep:
    """A transformation by the end of its class's name (Debezium's: by all of it), and for which records."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    predicate: str | None = None
    predicate_config: Mapping[str, str] = field(default_factory=dict)
    is_negated: bool = False


@dataclass(frozen=True)
class JavaRecord:
    """A record before or after: bytes as JsonConverter has them, or why it was refused."""

    value: bytes | None = None
    key: bytes | None = None
    topic: str = "t"
    timestamp: int | None = None
    offset: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    refusal: str = ""
    """The exception's class and message."""
    is_dropped: bool = False


class ConfigRefused(Exception):
    """Java's class does not take its config."""


@dataclass
class JavaTransforms:
    """Connect's classes."""

    jvm: subprocess.Popen[str]

    def applied(
        self,
        chain: Sequence[JavaStep],
        records: Sequence[JavaRecord],
        *,
        has_schemas: bool,
        is_sink: bool = False,
        is_null_defaulted: bool = False,
        header_converter: str | None = None,
        header_config: Mapping[str, str] | None = None,
        are_headers_told: bool = False,
    ) -> list[JavaRecord]:
        """Each record after the chain; raises ConfigRefused. `is_null_defaulted` is JsonConverter's key.

        With ``are_headers_told`` headers are read by their converter, and given as JsonConverter writes their values.
        """
        request = {
            "chain": [_step(step) for step in chain],
            "records": [_given(record) for record in records],
            "has_schemas": has_schemas,
            "is_sink": is_sink,
            "is_null_defaulted": is_null_defaulted,
            "header_converter": header_converter,
            "header_config": dict(header_config or {}),
            "are_headers_told": are_headers_told,
        }
        answer = self._asked(request)
        if isinstance(answer, dict):
            raise ConfigRefused(answer["refused"])
        return [_found(record, found) for record, found in zip(records, answer, strict=True)]

    def headers_read(self, texts: Sequence[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        """What SimpleHeaderConverter reads in each: as it writes that again, and as JsonConverter does.

        The second is empty where JsonConverter fails.
        """
        answer = self._asked({"texts": [_base64(text) for text in texts]})
        return [(_bytes(own), b"" if of_json == "refused" else _bytes(of_json)) for own, of_json in answer]

    def converted(self, converter: str, data: Sequence[bytes | None], *, is_read: bool) -> list[bytes | str | None]:
        """What a converter reads in bytes, as envelopes of JsonConverter, or writes of envelopes; a text: why not."""
        answer = self._asked({"converter": converter, "is_read": is_read, "data": [_base64(each) for each in data]})
        return [str(each["refusal"]) if "refusal" in each else _bytes(each["data"]) for each in answer]

    def _asked(self, request: Mapping[str, Any]) -> Any:
        assert self.jvm.stdin is not None
        assert self.jvm.stdout is not None
        self.jvm.stdin.write(f"{json.dumps(request)}\n")
        self.jvm.stdin.flush()
        return json.loads(self.jvm.stdout.readline())


def _step(step: JavaStep) -> dict[str, Any]:
    return {
        "class": step.name if step.name.startswith("io.") else PACKAGE + step.name,
        "config": dict(step.config),
        "predicate": None if step.predicate is None else f"{PACKAGE}predicates.{step.predicate}",
        "predicate_config": dict(step.predicate_config),
        "negate": step.is_negated,
    }


def _given(record: JavaRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "timestamp": record.timestamp,
        "offset": record.offset,
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _found(record: JavaRecord, found: Mapping[str, Any]) -> JavaRecord:
    if "topic" not in found:
        return JavaRecord(refusal=found.get("refusal", ""), is_dropped="is_dropped" in found)
    headers = tuple((name, _bytes(value)) for name, value in found["headers"])
    return JavaRecord(
        _bytes(found["value"]), _bytes(found["key"]), found["topic"], record.timestamp, record.offset, headers
    )


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


@pytest.fixture(scope="session")
def java_transforms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTransforms]:
    """One JVM for the whole run."""
    yield from opened(tmp_path_factory.mktemp("java-transforms"))


def opened(classes: Path) -> Iterator[JavaTransforms]:
    """Compiled into the folder, and running."""
    jars = os.pathsep.join((class_path("connect"), class_path("debezium")))
    subprocess.run(["javac", "-cp", jars, "-d", str(classes), str(PROGRAM)], check=True, timeout=400)
    options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", "-Duser.language=en")
    command = [str(java_program()), *options, "-cp", os.pathsep.join((jars, str(classes))), PROGRAM.stem]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    ) as jvm:
        yield JavaTransforms(jvm)
        assert jvm.stdin is not None
        jvm.stdin.close()
        jvm.wait(timeout=120)
