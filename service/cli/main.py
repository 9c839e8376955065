"""The commands of ``./headrace``; what they do is elsewhere."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from service.cli.remote.connectors import apply, config, create, delete, list_connectors, patch
from service.cli.remote.offsets import offsets
from service.cli.remote.plugins import loggers, plugins, used_topics
from service.cli.remote.states import logs, pause, restart, resume, status, stop
from service.version import VERSION

COMPLETION_VARIABLE = "_HEADRACE_COMPLETE"
"""Set by the shell's completion script when it asks for completions."""
REMOTE_COMMANDS: tuple[click.Command, ...] = (
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
"""Those that ask a worker, ours or Java's."""

FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
FOLDER = click.Path(file_okay=False, exists=True, path_type=Path)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Of the launcher: 'test' runs every test, 'check' what CI runs first, 'bench' the figures beside a peer's, "
        "'docs' writes the reference pages, 'site' makes a site of all pages."
    ),
)
@click.version_option(VERSION, prog_name="headrace")
def main() -> None:
    """Records from anywhere into Kafka: validated by Spark, exactly once."""


@main.command()
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("connectors", nargs=-1, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--until-idle", metavar="SECONDS", type=click.FloatRange(min=0), help="End after all were idle that long."
)
def standalone(worker: Path, connectors: tuple[Path, ...], until_idle: float | None) -> None:
    """Run connectors in one process; the files are those of connect-standalone, .json too."""
    from service.cli.standalone import run_to_end  # noqa: PLC0415 - help must not wait for Spark's imports
    from service.job import read_job  # noqa: PLC0415 - as above

    sys.exit(run(run_to_end(lambda: read_job(worker, connectors), idle_seconds=until_idle)))


@main.command()
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
def worker(worker: Path) -> None:
    """Run one worker of a cluster; the file is that of connect-distributed. As many as wanted, on any hosts."""
    from service.cli.standalone import run_to_end  # noqa: PLC0415 - as above
    from service.job import read_job  # noqa: PLC0415 - as above

    sys.exit(run(run_to_end(lambda: read_job(worker, ()), is_distributed=True)))


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8083, show_default=True, help="Port of REST.")
@click.option("--kafka-port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="Port of Kafka.")
@click.option(
    "--registry-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port of the registry."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace/dev"),
    show_default=True,
    help="Folder for the servers' data; kept.",
)
def dev(port: int, kafka_port: int, registry_port: int, data: Path) -> None:
    """Run an embedded Kafka, a schema registry and one worker; 0 picks a free port."""
    from service.cli.dev import run_dev  # noqa: PLC0415 - as above

    sys.exit(run(run_dev(data_dir=data, rest_port=port, kafka_port=kafka_port, registry_port=registry_port)))


@main.command()
@click.argument("what", type=click.Choice(["mixpanel", "x", "pipeline"]), default="mixpanel")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
@click.option("--keep", is_flag=True, help="Leave everything running, and print where.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace/demo"),
    show_default=True,
    help="Folder for the demo's data: new, empty, or of an earlier demo, which is deleted first.",
)
def demo(what: str, json_file: Path | None, *, keep: bool, data: Path) -> None:
    """Run the main job on an embedded real Kafka, and prove that the accounts balance.

    WHAT is simulated is what it reads: mixpanel (with a file of orders) or x, the stream of X under the Twitter config
    of 2016. WHAT pipeline simulates nothing: a table of MariaDB goes through Kafka into OpenSearch and into Parquet
    files that Spark SQL reads. It needs MariaDB's server (mariadbd) and Java; OpenSearch is fetched by the first call.
    """
    from service.cli.demo import run_demo, run_pipeline_demo, run_x_demo  # noqa: PLC0415 - as above

    runs = {"x": run_x_demo, "pipeline": run_pipeline_demo}.get(what, run_demo)
    sys.exit(run(runs(folder=data, json_file=json_file, is_kept=keep)))


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the broker; 0 picks a free one.")
@click.option("--registry", is_flag=True, help="Run the schema registry too.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace/broker"),
    show_default=True,
    help="Folder for the servers' data; kept.",
)
def broker(port: int, *, registry: bool, data: Path) -> None:
    """Run the embedded Kafka alone, in the foreground; prints one line `ready …` when usable."""
    from service.embedded.command import run_broker  # noqa: PLC0415 - as above

    sys.exit(run(run_broker(data_dir=data, port=port, has_registry=registry)))


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that reads topics the options of where Kafka is, as one mapping named ``access``."""

    @click.option(
        "--config",
        type=FILE,
        help="Properties of a worker or of a Kafka client: addresses and logins.",
    )
    @click.option("--bootstrap", help="Kafka brokers; else of the file, of $HEADRACE_BOOTSTRAP, or 127.0.0.1:9092.")
    @click.option(
        "--registry", "registry_url", help="Schema registry URL, for Avro; else of the file, or of $HEADRACE_REGISTRY."
    )
    @click.option(
        "--data",
        "data_dir",
        type=FOLDER,
        help="Folder of an embedded Kafka; one that does not run is started for the reading.",
    )
    @functools.wraps(command)
    def reading(
        *, config: Path | None, bootstrap: str | None, registry_url: str | None, data_dir: Path | None, **rest: Any
    ) -> None:
        access = {"config": config, "bootstrap": bootstrap, "registry_url": registry_url, "data_dir": data_dir}
        command(access=access, **rest)

    return reading


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run to its end, and give its exit code."""
    import asyncio  # noqa: PLC0415 - help and the commands that ask a worker must not wait for it

    return asyncio.run(work)


def run_interruptible(work: Coroutine[Any, Any, int]) -> int:
    """The same; Ctrl-C is how somebody ends a reading, and no failure."""
    try:
        return run(work)
    except KeyboardInterrupt:
        return 0


@main.group()
def topic() -> None:
    """Look into topics of the worker's Kafka."""


@topic.command("read")
@click.argument("name")
@access_options
@click.option("--from", "begin", metavar="PLACE", help="Offset (-5: the last five), time, 10m (ago), beginning or end.")
@click.option("--to", "end", metavar="PLACE", help="Where to stop, excluded; as --from.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this; repeatable.")
@click.option("--key", help="Only records with this key.")
@click.option("--headers", "has_headers", is_flag=True, help="Show times and headers too.")
@click.option("--follow", "is_following", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--max", "records_max", type=click.IntRange(min=1), default=None, help="Stop after so many records.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Seconds to wait for a topic that is not there yet.",
)
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
def read_topic(name: str, access: Mapping[str, Any], begin: str | None, end: str | None, **rest: Any) -> None:
    """Print committed records: decoded values and keys, offsets as PARTITION:OFFSET."""
    from service.cli.access import AccessOptions  # noqa: PLC0415 - as above
    from service.cli.topics import Wanted, read_wanted_span, run_read_topic  # noqa: PLC0415 - as above

    where = {name: rest.pop(name) for name in ("partitions", "is_following", "wait_seconds")}
    wanted = Wanted(span=read_wanted_span(begin, end, **where), **rest)
    sys.exit(run_interruptible(run_read_topic(name, AccessOptions(**access), wanted)))


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@click.option("--worker", type=FILE, help="Worker file to hold them against.")
@click.option("--json", "is_json", is_flag=True, help="The findings as JSON.")
@click.option("--deep", "is_deep", is_flag=True, help="Ask Spark, the schema registry, the source and Kafka too.")
def validate(files: tuple[Path, ...], worker: Path | None, *, is_json: bool, is_deep: bool) -> None:
    """Say all that is wrong with connector files, without a worker; exit code 2 where anything is."""
    from service.cli.validate import run_validate  # noqa: PLC0415 - as above

    sys.exit(run_validate(files, worker, is_json=is_json, is_deep=is_deep))


@main.command("dead-letters")
@click.argument("connector")
@access_options
@click.option("--topic", help="Dead-letter topic; CONNECTOR-dead-letters when not given.")
@click.option(
    "--offsets",
    "offsets_topic",
    help="Topic that knows what was redriven: offset.storage.topic of --config, else headrace-offsets.",
)
@click.option("--open", "is_listed", is_flag=True, help="Each open letter by itself.")
@click.option(
    "--export", metavar="FILE", help="Write open letters there, one JSON object a line; - is standard output."
)
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def dead_letters(access: Mapping[str, Any], **wanted: Any) -> None:
    """Show what a connector rejected and no redrive has delivered since: by reason and field, with examples."""
    from service.cli.access import AccessOptions  # noqa: PLC0415 - as above
    from service.cli.dead_letters import LettersWanted, run_dead_letters  # noqa: PLC0415 - as above

    sys.exit(run_interruptible(run_dead_letters(AccessOptions(**access), LettersWanted(**wanted))))


@main.command()
@click.argument("file", metavar="CONNECTOR", type=FILE)
@click.option("--worker", type=FILE, help="Worker file to read it with.")
@click.option(
    "--max", "records_max", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Records to show."
)
@click.option(
    "--timeout",
    "seconds_max",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="How long the source may take.",
)
@click.option("--json", "is_json", is_flag=True, help="Everything as one JSON object.")
def preview(file: Path, worker: Path | None, *, records_max: int, seconds_max: float, is_json: bool) -> None:
    """Show what a source connector would do with the first records of its source; writes nothing, needs no Kafka."""
    from service.cli.preview import run_preview  # noqa: PLC0415 - as above
    from service.preview.sampling import SampleLimits  # noqa: PLC0415 - as above

    limits = SampleLimits(records_max=records_max, seconds_max=seconds_max)
    sys.exit(run_preview(file, worker, limits, is_json=is_json))


@main.group()
def contract() -> None:
    """Make a contract from a sample of records, or hold a sample against one."""


@contract.command("infer")
@click.argument("source", metavar="CONNECTOR|FILE|TOPIC")
@click.option(
    "--max",
    "records_max",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Records of the sample.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="New file for the schema; else it is shown."
)
@click.option("--worker", type=FILE, help="Worker file of the connector.")
@access_options
def infer_contract(
    source: str, *, records_max: int, out: Path | None, worker: Path | None, access: Mapping[str, Any]
) -> None:
    """Print an Avro schema that every record of a sample meets; what was not certain is said in it.

    The sample is the beginning of a connector's source (named by its file), a file of JSON (a record a line, or an
    array), or a topic. Nothing else is written or registered.
    """
    from service.cli.contract import run_infer  # noqa: PLC0415 - as above
    from service.preview.samples import SampleSource  # noqa: PLC0415 - as above

    sys.exit(run_infer(SampleSource(source, worker, access), records_max=records_max, out=out))


@contract.command("check")
@click.argument("schema", type=FILE)
@click.argument("file", type=FILE)
@click.option("--coerce", default="", help="As contract.coerce: numbers, instants, booleans, enums, empty.")
@click.option(
    "--unknown-fields", type=click.Choice(("ignore", "reject")), default="ignore", help="As contract.unknown.fields."
)
@click.option("--json", "is_json", is_flag=True, help="The verdicts as JSON.")
def check_contract(schema: Path, file: Path, *, coerce: str, unknown_fields: str, is_json: bool) -> None:
    """Judge the records of a JSON file by an Avro schema, without Spark; exit code 2 where any is rejected."""
    from service.cli.contract import run_check  # noqa: PLC0415 - as above

    sys.exit(run_check(schema, file, coerce=coerce, unknown_fields=unknown_fields, is_json=is_json))


@main.command()
@click.argument("dead_letter_topic")
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("connectors", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
def redrive(dead_letter_topic: str, worker: Path, connectors: tuple[Path, ...]) -> None:
    """Put dead letters through their connector's conversion again; what passes goes to the topic, exactly once."""
    from service.cli.redrive import run_redrive  # noqa: PLC0415 - as above

    sys.exit(run(run_redrive(dead_letter_topic, worker, connectors)))


in_folder = click.option("--in", "parent", type=FOLDER, default=Path(), help="Folder for it, if not the current one.")


@main.group()
def new() -> None:
    """Begin a connector of your own."""


@new.command("source")
@click.argument("name")
@click.option("--http", "is_http", is_flag=True, help="One that reads lists of a JSON API, incremental and paged.")
@in_folder
def new_source(name: str, parent: Path, *, is_http: bool) -> None:
    """Write a source that runs, its connector file, and its test with the contract suite, which passes."""
    from service.cli.new import run_new  # noqa: PLC0415 - as above

    sys.exit(run_new("http source" if is_http else "source", name, parent))


@new.command("sink")
@click.argument("name")
@in_folder
def new_sink(name: str, parent: Path) -> None:
    """Write a sink that posts to a web address, its connector file, and its test with the contract suite."""
    from service.cli.new import run_new  # noqa: PLC0415 - as above

    sys.exit(run_new("sink", name, parent))


@main.command()
def parts() -> None:
    """Fetch the JVM parts now, before a command needs them: when an image is built, for example."""
    from service.embedded.jars import class_path, registry_folder, spark_avro_jar  # noqa: PLC0415 - as above

    # Set-up has run before this command; what it could not get is said here.
    click.echo(
        f"{len(class_path('kafka').split(os.pathsep))} jars of Kafka, {spark_avro_jar().name}, {registry_folder()}"
    )


@main.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script that completes these commands; to be sourced by the shell."""
    kind = get_completion_class(shell)
    if kind is None:
        message = f"unknown shell {shell}"
        raise click.UsageError(message)
    click.echo(kind(main, {}, "headrace", COMPLETION_VARIABLE).source())


for command in REMOTE_COMMANDS:
    main.add_command(command)


@main.command("help")
@click.pass_context
def show_help(context: click.Context) -> None:
    """Show the list of all commands."""
    click.echo(context.parent.get_help() if context.parent else "")
