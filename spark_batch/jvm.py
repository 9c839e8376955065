"""Launches Spark's JVM: in a session of its own, and with what it prints told as log lines of the worker."""

from __future__ import annotations

import json
import logging
import os
import re
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING

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
        popen_options = {"start_new_session": True, "stdout": writer, "stderr": writer}
        gateway = launch_gateway(conf, popen_options)  # type: ignore[no-untyped-call] # PySpark's
    finally:
        os.close(writer)
    pyspark.SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - PySpark offers no public way


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
