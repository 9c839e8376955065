"""How the embedded broker is set: one node that is broker and controller, small, and losing nothing.

No path of a user's stands here: Java reads properties as ISO-8859-1, a comma parts `log.dirs`, and log4j2 has signs of
its own. The broker runs in its directory, where plain names are enough.

Names and defaults: https://kafka.apache.org/41/configuration/broker-configs/
"""

from __future__ import annotations

from service.embedded.ports import LOOPBACK

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
TRANSACTION_SECONDS_MAX = 15 * 60
NODE_ID = 1

_INTERNAL_PARTITIONS = 4


def broker_properties(*, port: int, controller_port: int, log_folder: str) -> dict[str, str]:
    """The broker's properties for these ports and this folder of topic data, a name in the broker's directory."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_folder,
        **_TOPICS,
        **_INTERNAL_TOPICS,
        **_SMALL,
    }


_TOPICS = {
    "num.partitions": "1",
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # Record timestamps may come from the source: a backfill of past years must not be deleted by its age.
    "log.retention.ms": "-1",
    # Nor must a client whose clock is a day fast stop a task: Kafka refuses what is more than an hour ahead.
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    # Dead letters keep a too large record whole, twice `record.bytes.max` and more.
    "message.max.bytes": str(MESSAGE_BYTES_MAX),
    "replica.fetch.max.bytes": str(MESSAGE_BYTES_MAX),
    "transaction.max.timeout.ms": str(TRANSACTION_SECONDS_MAX * 1000),
    # Joining a group takes no three seconds of waiting for others.
    "group.initial.rebalance.delay.ms": "0",
}

_INTERNAL_TOPICS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": str(_INTERNAL_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": str(_INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}

_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    # After a kill the controller admits the broker again only when its old session is over; 9 s by default. Less than
    # this, and where processor time is short a living broker is fenced, its partitions without a leader.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    # The default of 128 MiB would be a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

LOG = "kafka.log"
LOGGING = f"""\
status = warn
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {LOG}
appender.file.filePattern = {LOG}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c: %m%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
"""log4j2's configuration: everything into `LOG`, of at most 64 MB with its predecessors."""


def properties_text(properties: dict[str, str]) -> str:
    """Java's form of properties; our values have nothing to be escaped."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())
