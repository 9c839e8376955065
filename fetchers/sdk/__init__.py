"""The contract between a fetcher and the worker, and everything an author of a fetcher imports.

A fetcher is a config class and a connector class::

    class QuakesConfig(FetcherConfig):
        \"\"\"Earthquakes as they are published.\"\"\"

        url: HttpUrl
        \"\"\"Feed to poll.\"\"\"


    class Quakes(SourceConnector[QuakesConfig]):
        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]: ...

The worker calls ``fetch`` once for each start of a task and iterates it; every page carries the source
offset to resume from after it. Stopping is cancellation: a fetcher needs no stop flag, only ``finally``.
"""

from fetchers.sdk.clock import Clock, SystemClock
from fetchers.sdk.config import (
    Boolean,
    ConfigKey,
    ConfigModel,
    FetcherConfig,
    Finding,
    HttpUrl,
    Importance,
    IsoDate,
    Key,
    NameList,
    ParsedConfig,
    Secret,
    SecretMap,
    Severity,
    TextMap,
    TopicsConfig,
)
from fetchers.sdk.connector import ConnectorSettingsError, SourceConnector
from fetchers.sdk.context import FetchContext, WorkContext, partition_key
from fetchers.sdk.errors import Disconnected, Fatal, FetchError, RateLimited, Retriable, SocketClosed
from fetchers.sdk.http import (
    AnswerRule,
    Authorizer,
    Credentials,
    HttpAccess,
    HttpDoor,
    HttpLimits,
    HttpResponse,
    HttpStream,
    HttpWebSocket,
    Records,
    RequestBudget,
    RequestOptions,
    SocketMessage,
    StatusTable,
    StatusVerdict,
    TlsSettings,
)
from fetchers.sdk.inbox import Inbox, InboxLimits
from fetchers.sdk.listening import SourceEnded, listen
from fetchers.sdk.page import DedupeScope, Offset, Page, Partition, PayloadKind, Rejection, Scalar
from fetchers.sdk.retry import BackOff, Linear, Reconnect
from fetchers.sdk.rows import RowSchema

__all__ = [
    "AnswerRule",
    "Authorizer",
    "BackOff",
    "Boolean",
    "Clock",
    "ConfigKey",
    "ConfigModel",
    "ConnectorSettingsError",
    "Credentials",
    "DedupeScope",
    "Disconnected",
    "Fatal",
    "FetchContext",
    "FetchError",
    "FetcherConfig",
    "Finding",
    "HttpAccess",
    "HttpDoor",
    "HttpLimits",
    "HttpResponse",
    "HttpStream",
    "HttpUrl",
    "HttpWebSocket",
    "Importance",
    "Inbox",
    "InboxLimits",
    "IsoDate",
    "Key",
    "Linear",
    "NameList",
    "Offset",
    "Page",
    "ParsedConfig",
    "Partition",
    "PayloadKind",
    "RateLimited",
    "Reconnect",
    "Records",
    "Rejection",
    "RequestBudget",
    "RequestOptions",
    "Retriable",
    "RowSchema",
    "Scalar",
    "Secret",
    "SecretMap",
    "Severity",
    "SocketClosed",
    "SocketMessage",
    "SourceConnector",
    "SourceEnded",
    "StatusTable",
    "StatusVerdict",
    "SystemClock",
    "TextMap",
    "TlsSettings",
    "TopicsConfig",
    "WorkContext",
    "listen",
    "partition_key",
]
