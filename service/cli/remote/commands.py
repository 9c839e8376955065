"""All commands that ask a worker, for the command line to take up."""

from __future__ import annotations

import click

from service.cli.remote.connectors import apply, config, create, delete, list_connectors, patch
from service.cli.remote.offsets import offsets
from service.cli.remote.plugins import loggers, plugins, used_topics
from service.cli.remote.states import logs, pause, restart, resume, status, stop

COMMANDS: tuple[click.Command, ...] = (
    list_connectors,
    create,
    apply,
    config,
    patch,
    delete,
    status,
    logs,
    pause,
    resume,
    stop,
    restart,
    offsets,
    plugins,
    used_topics,
    loggers,
)
