"""Requests in versions that the client library does not know, in the forms of Kafka's protocol.

https://kafka.apache.org/protocol gives the fields of each version.
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchCall(RequestStruct):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(("name", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("is_stable_required", Boolean),
        ("tags", TaggedFields),
    )


class OffsetFetchRequest(Request[_OffsetFetchCall]):  # type: ignore[misc]
    """Of offsets that no open transaction is about to change (KIP-447)."""

    API_KEY = 9

    def __init__(self, group_id: str, topics: dict[str, list[int]]) -> None:
        self._fields: tuple[object, ...] = (
            group_id,
            [(topic, partitions, {}) for topic, partitions in topics.items()],
            True,
        )

    def build(self, request_struct_class: type[_OffsetFetchCall]) -> _OffsetFetchCall:
        """The one version that there is here."""
        return request_struct_class(*self._fields, {})


class _TxnOffsetCommitResponse(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(("partition", Int32), ("error_code", Int16), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _TxnOffsetCommitCall(RequestStruct):  # type: ignore[misc]
    """Version 3; the library knows version 0, which cannot say who commits."""

    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TxnOffsetCommitResponse
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("group_id", CompactString("utf-8")),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation", Int32),
        ("member_id", CompactString("utf-8")),
        ("group_instance_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class TxnOffsetCommitRequest(Request[_TxnOffsetCommitCall]):  # type: ignore[misc]
    """Of offsets that become part of a transaction, by a member of the group (KIP-447).

    Fields: transactional id, group id, producer id, producer epoch, generation, member id, instance id, topics.
    """

    API_KEY = 28

    def __init__(self, *fields: object) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[_TxnOffsetCommitCall]) -> _TxnOffsetCommitCall:
        """The one version that there is here."""
        return request_struct_class(*self._fields, {})


class _InitProducerIdResponse(Response):  # type: ignore[misc]
    """Version 4; the library knows version 0, which cannot name the producer that asks."""

    API_KEY = 22
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _InitProducerIdCall(RequestStruct):  # type: ignore[misc]
    API_KEY = 22
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _InitProducerIdResponse
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class InitProducerIdRequest(Request[_InitProducerIdCall]):  # type: ignore[misc]
    """Of a producer that has an id and an epoch already (KIP-360)."""

    API_KEY = 22

    def __init__(self, *fields: object) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[_InitProducerIdCall]) -> _InitProducerIdCall:
        """The one version that there is here."""
        return request_struct_class(*self._fields, {})
