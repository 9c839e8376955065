"""Writes structured logs: one line an event, JSON or plain, ours and those of libraries alike.

An event is logged by its class: ``TaskFailed`` is ``task_failed`` at error in ``headrace.task``.
Loggers are those of the standard library, so levels are inherited along the dots and can be changed
while the worker runs (``log_levels``). Every line passes the ``Redactor``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from metrics.events import (
    ComponentStateChanged,
    ConnectorStarted,
    Event,
    Level,
    StopReported,
    TaskStarted,
)
from metrics.log_levels import level_number
from metrics.log_repeats import RepeatFilter
from metrics.redaction import Redactor, redact_by_place

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

QUIET_LIBRARIES = ("aiokafka", "py4j", "pyspark", "asyncio", "urllib3", "aiohttp")
"""Logged from warning up: below it they tell of every request, on a hot path."""

NUMBERS = {
    Level.DEBUG: logging.DEBUG,
    Level.INFO: logging.INFO,
    Level.WARNING: logging.WARNING,
    Level.ERROR: logging.ERROR,
}


MARKS: tuple[Processor, ...] = (
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
HEAD = ("timestamp", "level", "logger", "event")
_MARKED = HEAD[:3]
_SHOWN = "_is_verbatim"
"""A field of events of ours, for the redaction alone."""


class LogFormat(StrEnum):
    """How a line looks: for machines, or for eyes."""

    JSON = "json"
    CONSOLE = "console"


def configure_logging(
    *,
    format: LogFormat = LogFormat.JSON,  # noqa: A002 - the word of the configuration key
    level: str = "INFO",
    stream: TextIO | None = None,
    redactor: Redactor | None = None,
) -> None:
    """Send every log line of the process to ``stream`` (None: standard error). May be called again.

    ``level`` is the root's, by Python's or log4j's name. Raises ValueError for another.
    """
    hide = _Redaction(redactor or Redactor())
    render: Processor = _render_json if format is LogFormat.JSON else _render_console
    handler = _LineHandler(stream or sys.stderr)
    # py4j reports a lost JVM on the root logger, and each of its attempts as well.
    handler.addFilter(lambda record: record.name != "root" or record.levelno >= logging.WARNING)
    handler.addFilter(_without_trace_of_py4j)
    handler.addFilter(RepeatFilter((*QUIET_LIBRARIES, "root")))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=MARKS,
            processors=[
                structlog.processors.format_exc_info,
                _name_trace,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                hide,
                render,
            ],
        )
    )
    root = logging.getLogger()
    for earlier in [old for old in root.handlers if isinstance(old, _LineHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level_number(level))
    logging.captureWarnings(capture=True)
    for library in QUIET_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, level_number(level)))


class LogObserver:
    """An ``Emit`` that writes one line an event, where the level of its logger lets it through."""

    def __init__(self) -> None:
        self._loggers: dict[type[Event], tuple[logging.Logger, Any]] = {}

    def __call__(self, event: Event) -> None:
        """Log the event; costs one comparison where it is too quiet to be written."""
        kind = type(event)
        if kind not in self._loggers:
            self._loggers[kind] = _loggers_of(kind)
        logger, structured = self._loggers[kind]
        number = NUMBERS[_level_of(event)]
        if logger.isEnabledFor(number):
            fields = {
                field.name: value
                for field in dataclasses.fields(event)
                if (value := getattr(event, field.name)) not in (None, "")
            }
            structured.log(number, _name_of(kind), **{_SHOWN: kind.is_verbatim}, **fields)


def _level_of(event: Event) -> Level:
    match event:
        case TaskStarted(is_success=False) | ConnectorStarted(is_success=False):
            return Level.ERROR
        case ComponentStateChanged(is_ready=False, detail="starting" | "joining"):
            # Nobody has had it yet: a first start is no alarm.
            return event.level
        case ComponentStateChanged(is_ready=False) | StopReported(is_complete=False):
            return Level.WARNING
        case _:
            return event.level


def _loggers_of(kind: type[Event]) -> tuple[logging.Logger, Any]:
    logger = logging.getLogger(kind.logger)
    structured = structlog.wrap_logger(
        logger,
        processors=[
            *MARKS,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return logger, structured.bind()


def _name_of(kind: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class _LineHandler(logging.StreamHandler[TextIO]):
    """Ours, so that configuring again replaces it and leaves the handlers of others."""


class _Redaction:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, _logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
        is_verbatim = fields.pop(_SHOWN, None)
        # The name of an event of ours is no text of anybody else's; that of a library's line is its message.
        own = _MARKED if is_verbatim is None else HEAD
        return {
            name: value if name in own else self._shown(name, value, is_verbatim=bool(is_verbatim))
            for name, value in fields.items()
        }

    def _shown(self, name: str, value: object, *, is_verbatim: bool) -> object:
        if is_verbatim:
            return redact_by_place(value) if isinstance(value, str) else value
        return self._redactor.redact_field(name, value)


def _without_trace_of_py4j(record: logging.LogRecord) -> bool:
    """A JVM that is gone, or is ended by a stop, is told in one line: what is done about it is told by events."""
    if record.name == "root" and record.module == "java_gateway":
        record.msg, record.args, record.exc_info = "The connection to the JVM of Spark broke.", (), None
    return True


def _name_trace(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    if "exception" in fields:
        fields["trace"] = fields.pop("exception")
    if fields.get("trace") == "":
        del fields["trace"]
    return fields


def _render_json(_logger: WrappedLogger, _method: str, fields: EventDict) -> str:
    head = {name: fields.pop(name, "") for name in HEAD}
    # ASCII only: U+2028 and its like would end the line for some readers.
    return json.dumps(head | dict(fields))


def _render_console(_logger: WrappedLogger, _method: str, fields: EventDict) -> str:
    head = " ".join(_plain(fields.pop(name, "")) for name in HEAD)
    return " ".join([head, *(f"{name}={_plain(value)}" for name, value in fields.items())])


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if re.fullmatch(r"[^\s\"=\\]+", text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
