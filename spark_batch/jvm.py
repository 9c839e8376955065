"""Launches Spark's JVM: in a session of its own, and with what it prints told as log lines of the worker."""

from __future__ import annotations

import json
import logging
import os
import re
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import pyspark
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG4J_SETTINGS = Path(__file__).with_name("log4j2.properties").absolute()
"""Has one line written for each of Spark's log events, as `_LOGGED` reads it."""
LOGGER = "headrace.spark.jvm"
_LOGGED = re.compile(r"log4j (FATAL|ERROR|WARN|INFO|DEBUG|TRACE) (\S+) (.*)")
_LEVELS = {"FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO}
_OF_EVERY_START = ("WARNING: Using incubator modules", "Setting ", "To adjust logging level")
"""How lines begin that each JVM prints, and that are no news."""
_PYSPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to switch off: they print each refused expression past all handlers; whoever gets the error tells it."""


def launch_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM that the next session of this process will use; blocks until it answers. Raises as PySpark does.

    A signal for the worker's process group or its terminal does not reach it: the worker stops step by step, and needs
    Spark for what it has fetched. It ends with the worker all the same, for it reads an end of file then.
    """
    for name in _PYSPARK_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    conf = pyspark.SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    reader, writer = os.pipe()
    # Read from before the start on: a JVM that prints more than a pipe holds would wait for ever.
    Thread(target=partial(tell_lines, os.fdopen(reader, errors="replace")), name="spark-log", daemon=True).start()
    try:
        gateway = gateway_of_a_jvm(conf, writer)
    finally:
        os.close(writer)
    pyspark.SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - PySpark offers no public way


def gateway_of_a_jvm(conf: pyspark.SparkConf, output: int) -> Any:
    """Py4J's gateway to a JVM in a session of its own, which prints to that file descriptor; blocks until it answers.

    This process is never forked for it: a fork while other threads are within gRPC, as those of Spark Connect and of
    other libraries are, crashes the child before it is the JVM, or hangs.
    """
    return launch_gateway(conf, _Unforked(start_new_session=True, stdout=output, stderr=output))  # type: ignore[no-untyped-call] # PySpark's


class _Unforked(dict[str, Any]):
    """Options for Popen to which nobody adds a ``preexec_fn``, the one option that makes it fork.

    PySpark adds one that ignores SIGINT; in a session of its own no terminal sends one.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        """As a dict does, for every other option."""
        if name != "preexec_fn":
            super().__setitem__(name, value)


def tell_lines(lines: IO[str]) -> None:
    """Log each line of a JVM, until it and all that it started have closed their ends."""
    logger = logging.getLogger(LOGGER)
    with lines:
        for line in lines:
            if line.strip():
                logger.log(*_read(line.rstrip()))


def _read(line: str) -> tuple[int, str, str]:
    """The level of a line, and what is to be logged of it: a format and its one value."""
    logged = _LOGGED.fullmatch(line)
    if logged is None:
        return logging.DEBUG if line.startswith(_OF_EVERY_START) else logging.WARNING, "%s", line
    level, name, text = logged.groups()
    return _LEVELS.get(level, logging.DEBUG), f"{name}: %s", _unescaped(text).strip()


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text
