"""Every event is one line, at its level, without secrets; libraries' lines look alike."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.events import (
    ChangeAudited,
    ComponentStateChanged,
    DeadLettersWritten,
    Event,
    PageFetched,
    TaskFailed,
    TaskStarted,
    TaskStateChanged,
    WorkerStarted,
)
from metrics.log_levels import LogLevels, level_name, level_number
from metrics.logging import LogFormat, LogObserver, configure_logging
from metrics.redaction import HIDDEN, Redactor


def json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the lines as a log collector reads them."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_fields() -> None:
    """Time, level, logger and name come first, then the fields; empty ones are left out."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    LogObserver()(TaskStateChanged("orders", 2, state="RUNNING"))

    (line,) = json_lines(stream)
    assert list(line) == ["timestamp", "level", "logger", "event", "connector", "task", "state"]
    assert line | {"timestamp": "now"} == {
        "timestamp": "now",
        "level": "info",
        "logger": "headrace.task",
        "event": "task_state_changed",
        "connector": "orders",
        "task": 2,
        "state": "RUNNING",
    }
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("format", list(LogFormat))
@settings(deadline=None)  # configures the process each time
@given(text=st.text())
def test_no_text_breaks_a_line(format: LogFormat, text: str) -> None:  # noqa: A002 - the option's name
    """A trace or message with any line end stays on one line."""
    stream = io.StringIO()
    configure_logging(format=format, stream=stream)
    LogObserver()(TaskFailed("c", 0, error_class="Fatal", message=text, trace=f"a\nb\u2028c\x85{text}"))
    logging.getLogger("some.library").error("%s", text)

    assert len(stream.getvalue().splitlines()) == 2


def test_the_console_line_is_for_eyes() -> None:
    """Words stand bare, texts in quotes."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.CONSOLE, stream=stream)
    LogObserver()(TaskFailed("c", 0, error_class="Fatal", message='no "x" = y', trace="t"))

    _, _, rest = stream.getvalue().partition(" ")
    assert rest == (
        'error headrace.task task_failed connector=c task=0 error_class=Fatal message="no \\"x\\" = y" trace=t\n'
    )


def test_a_failure_without_a_trace_has_no_such_field() -> None:
    """What is said in a sentence is not followed by an empty word."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.CONSOLE, stream=stream)
    LogObserver()(TaskFailed("c", 0, error_class="Fatal", message="no", trace=""))
    assert stream.getvalue().endswith("error_class=Fatal message=no\n")


def test_no_secret_is_written_by_event_or_library() -> None:
    """A learnt secret is hidden in messages, traces and arguments of libraries' lines."""
    stream, redactor = io.StringIO(), Redactor()
    redactor.learn("s3cr3t value")
    configure_logging(stream=stream, redactor=redactor)
    LogObserver()(TaskFailed("c", 0, error_class="Fatal", message="got s3cr3t value", trace="f('s3cr3t value')"))
    logging.getLogger("some.library").warning("url %s", "http://h/?q=s3cr3t%20value")
    try:
        int("s3cr3t value")
    except ValueError:
        logging.getLogger("some.library").exception("failed")

    assert "s3cr3t" not in stream.getvalue()
    assert stream.getvalue().count(HIDDEN) >= 4
    assert "ValueError" in json_lines(stream)[2]["trace"]


def test_a_secret_of_a_common_text_blanks_no_audit_line_and_no_head() -> None:
    """Whoever writes a connector's password could otherwise hide who did what; by their place secrets stay hidden."""
    stream, redactor = io.StringIO(), Redactor()
    for secret in ("admin", "DELETE", "/connectors/c", "done", "info", "127.0.0.1", "headrace", "audit", "task_failed"):
        redactor.learn(secret)
    configure_logging(stream=stream, redactor=redactor)
    line = {"principal": "admin", "remote": "127.0.0.1", "method": "DELETE", "path": "/connectors/c"}
    LogObserver()(ChangeAudited(**line, query="token=abcd", outcome="done", status=204))
    LogObserver()(TaskFailed("c", 0, error_class="Fatal", message="not done", trace="t"))
    logging.getLogger("headrace.x").warning("not done")

    audited, failed, foreign = json_lines(stream)
    assert {name: audited[name] for name in line} == line
    assert (audited["outcome"], audited["query"]) == ("done", f"token={HIDDEN}")
    assert (audited["level"], audited["logger"], audited["event"]) == ("info", "headrace.audit", "change_audited")
    assert (failed["event"], failed["message"]) == ("task_failed", f"not {HIDDEN}")
    assert (foreign["event"], foreign["logger"]) == (f"not {HIDDEN}", "headrace.x")


def test_quiet_events_are_written_only_on_demand_and_at_once() -> None:
    """A level changed by name while running holds for the next event."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    observe, levels = LogObserver(), LogLevels()
    page = PageFetched("c", 0, records=1, bytes=1)
    observe(page)
    levels.set("headrace.fetch", "DEBUG")
    observe(page)
    levels.set("headrace", "OFF")
    observe(page)
    observe(TaskFailed("c", 0, error_class="Fatal", message="m", trace="t"))

    assert [line["event"] for line in json_lines(stream)] == ["page_fetched"]


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (TaskStarted("c", 0, is_success=True, seconds=1.0), "info"),
        (TaskStarted("c", 0, is_success=False, seconds=1.0), "error"),
        (ComponentStateChanged(component="kafka", is_ready=False), "warning"),
        (ComponentStateChanged(component="kafka", is_ready=True), "info"),
        (DeadLettersWritten("c", 0, count=1), "warning"),
    ],
)
def test_bad_news_is_louder(event: Event, level: str) -> None:
    """The level says whether someone should look."""
    stream = io.StringIO()
    configure_logging(stream=stream, level="DEBUG")
    LogObserver()(event)

    assert json_lines(stream)[0]["level"] == level


def test_configuring_again_replaces_and_does_not_double() -> None:
    """After a second call lines go to the new stream, once."""
    first, second = io.StringIO(), io.StringIO()
    configure_logging(stream=first)
    configure_logging(stream=second)
    LogObserver()(WorkerStarted(version="1"))

    assert first.getvalue() == ""
    assert len(json_lines(second)) == 1


def test_libraries_are_heard_from_warning_up() -> None:
    """What a library tells of every request stays out; its warnings come through."""
    stream = io.StringIO()
    configure_logging(stream=stream, level="DEBUG")
    logging.getLogger("py4j.clientserver").info("Command to send: …")
    logging.getLogger("aiokafka.conn").warning("Unable to connect")

    assert [line["event"] for line in json_lines(stream)] == ["Unable to connect"]


def test_a_jvm_that_is_gone_is_told_in_one_line() -> None:
    """py4j tells it on the root logger, with the traces of all that it tried; whoever runs a redrive is not helped."""
    stream = io.StringIO()
    configure_logging(stream=stream)
    error = ConnectionResetError(104, "reset by peer")
    trace = (type(error), error, None)
    place = "/site-packages/py4j/java_gateway.py"
    record = logging.LogRecord("root", logging.ERROR, place, 1059, "Exception while sending command.", (), trace)
    logging.getLogger().handle(record)
    (line,) = stream.getvalue().splitlines()
    assert "The connection to the JVM of Spark broke." in line
    assert "Traceback" not in line


def test_what_a_library_says_on_the_root_logger_is_quiet_too() -> None:
    """py4j tells each attempt there; that it gave up is told."""
    stream = io.StringIO()
    configure_logging(stream=stream, level="DEBUG")
    logging.info("Exception while sending command.")  # noqa: LOG015 - as py4j does
    logging.error("Exception while sending command.")  # noqa: LOG015 - as py4j does

    (line,) = json_lines(stream)
    assert line["level"] == "error"


def test_levels_are_read_and_set_as_connect_does() -> None:
    """Setting a logger sets all below it, tells which did not obey it yet and remembers when; strangers keep theirs."""
    LogLevels().set("root", "INFO")
    for name in ("hr_a", "hr_a.b", "hr_a.b.c", "hr_a.bc", "hr_ab"):
        logging.getLogger(name)
    levels = LogLevels(wall_clock=lambda: 1_712_345_678.901)
    before = levels.of("hr_ab")

    assert levels.set("hr_a.b", "WARN") == ["hr_a.b", "hr_a.b.c"]
    assert levels.set("hr_a.b.c", "WARN") == []
    changed = levels.of("hr_a.b.c")
    assert changed is not None
    assert (changed.level, changed.modified_ms) == ("WARN", 1_712_345_678_901)
    assert levels.of("hr_ab") == before
    assert levels.of("hr_nobody") is None
    assert levels.of_all()["root"].modified_ms is None
    assert {"root", "hr_a", "hr_ab"} <= set(levels.set("root", "ERROR"))


def test_an_unknown_level_is_refused_and_changes_nothing() -> None:
    """A misspelt level is an error that names the possible ones."""
    before = logging.getLogger().level
    with pytest.raises(ValueError, match=r"unknown log level 'LOUD', expected one of .*DEBUG"):
        LogLevels().set("root", "LOUD")

    assert logging.getLogger().level == before


@pytest.mark.parametrize("name", ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_log4j_names_survive_the_way_there_and_back(name: str) -> None:
    """Each of log4j's levels is shown under the name it was set by."""
    assert level_name(level_number(name)) == name
    assert level_number(name.lower()) == level_number(name)
