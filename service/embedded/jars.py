"""Where the JVM parts lie that set-up fetched. Nothing is fetched here: a running service asks no network."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from service.embedded.errors import EmbeddedError
from service.setup.archives import ClassArchives
from service.setup.failure import SetupFailure
from service.setup.jars import JarCache, cache_folder
from service.setup.prerequisites import find_java

_ROOT = Path(__file__).resolve().parents[2]


class PartsMissing(EmbeddedError):
    """Set-up has not been run, or its cache is damaged."""


def java_program() -> Path:
    """The Java to run; which release it is was checked at set-up."""
    java = find_java()
    if java is None:
        raise PartsMissing("there is no java on the PATH: install Java 17 or newer")
    return java


def parts(name: str) -> tuple[Path, ...]:
    """Every jar of a set (`kafka`, `debezium`)."""
    return _complete(name).files(name)


def class_path(name: str) -> str:
    """The class path of a set (`kafka`, `connect`)."""
    return os.pathsep.join(map(str, parts(name)))


@cache
def archive_options(name: str) -> tuple[str, ...]:
    """What lets a JVM (`kafka`, `spark`) start quickly: the class archive that set-up made of it; else nothing."""
    return ClassArchives(_ROOT, java_program(), environment=Path(sys.prefix)).options(name)


def spark_avro_jar() -> Path:
    """The jar that gives Spark its Avro functions, for `spark.jars`."""
    return _complete("spark").files("spark")[0]


def registry_folder() -> Path:
    """Folder of the unpacked schema registry, with its start script and its jars."""
    cache = _complete("registry")
    return cache.unpacked(cache.sets["registry"][0])


def _complete(name: str) -> JarCache:
    try:
        cache = JarCache(cache_folder())
    except SetupFailure as failure:
        raise PartsMissing(str(failure)) from failure
    if not cache.is_complete(name):
        tested = ("clients", "hdfs", "debezium", "mysql", "postgres17", "postgres18", "iceberg", "icebergrest")
        by_test = dict.fromkeys(tested, "./headrace test")
        by_other = {"connect": "./headrace bench", "opensearch": "./headrace demo pipeline"}
        how = (by_test | by_other).get(name, "headrace parts")
        raise PartsMissing(f"the JVM parts '{name}' are not in {cache.folder}: call {how} once to fetch them")
    return cache
