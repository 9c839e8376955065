"""Files in object storage that speaks Amazon's S3: objects are whole or not there, and nothing is ever renamed.

An object gets its final name by a copy within the storage, after the log's entry has committed it, so that readers of
the final names see nothing else. The entries of the log are made by conditional puts (``If-None-Match: *``), of which
the storage lets one succeed. Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, TypeVar, cast
from urllib.parse import urlsplit

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

from fetchers.sdk import Fatal
from fetchers.sdk.reach import ADDRESSES_KEY, AddressRefusedError, AllowedAddresses
from service.sinks.bound_clients import bind_boto
from service.sinks.filesystem.config import FilesConfig

T = TypeVar("T")
INSTANCE_ADDRESS = "169.254.169.254"
"""Where an instance of a cloud asks for its identity; who may reach it may be the worker."""
_CONNECT_SECONDS_MAX, _READ_SECONDS_MAX = 10, 60
_SPOOLED_BYTES = 1_048_576
_TRIES_OF_A_PUT = 5
_COPIED_BYTES_MAX = 5 << 30
"""Of one request (CopyObject)."""
_TOKEN = "headrace-put"  # noqa: S105 - name of an object's note, no secret
_MISSING = {"NoSuchKey", "NoSuchUpload", "404", "NotFound"}
_TAKEN = {"PreconditionFailed", "412"}
_MENDS = {
    "NoSuchBucket": "there is no such bucket: make it, or correct its name",
    "InvalidBucketName": "this is no name of a bucket: correct it",
    "AccessDenied": "permission is denied: allow to get, put, delete and list objects, and to end uploads",
    "403": "permission is denied: allow to get, put, delete and list objects, and to end uploads",
    "AllAccessDisabled": "access is disabled: ask the storage's owner",
    "AccountProblem": "the account has a problem: ask the storage's owner",
    "InvalidAccessKeyId": "the access key is unknown: correct aws.access.key.id",
    "SignatureDoesNotMatch": "the secret does not belong to the access key: correct aws.secret.access.key",
    "ExpiredToken": "the worker's identity has expired: renew it",
    "InvalidToken": "the worker's identity is not valid: renew it",
    "RequestTimeTooSkewed": "this machine's clock and the storage's are too far apart: set the clock",
    "PermanentRedirect": "the bucket is in another region: correct s3.region",
    "AuthorizationHeaderMalformed": "the bucket is in another region: correct s3.region",
    "301": "the bucket is in another region: correct s3.region",
    "KMS.DisabledException": "the bucket's key is disabled: enable it",
    "QuotaExceeded": "its quota is used up: make room",
    "EntityTooLarge": "an object is larger than the storage takes: lower flush.size, or set flush.size.bytes",
    "NotImplemented": "it does not know conditional puts (If-None-Match), without which no record is written once",
}
"""What a person must do about errors that waiting does not mend."""


class ObjectStore:
    """Objects of one bucket below one prefix, as the files of a sink. Everything blocks."""

    def __init__(self, config: FilesConfig, allowed: AllowedAddresses) -> None:
        """Raises Fatal where the storage cannot be used; asks it whether it obeys conditions."""
        parts = urlsplit(config.url)
        self.bucket, prefix = parts.netloc, parts.path.strip("/")
        self._root = f"{prefix}/" if prefix else ""
        self.part_bytes = config.s3_part_size
        self.client = _client(config, allowed)
        self._uploads: dict[str, list[str]] = {}
        """Begun by whoever had a partition before, by path."""
        self._check_conditions(f"{config.logs_dir}/.conditional")

    def _check_conditions(self, path: str) -> None:
        """A storage that puts in spite of the condition would let two tasks commit the same records."""
        for _ in range(2):
            try:
                self.ask(path, lambda: self._put_if_new(path, b"", {}))
            except FileExistsError:
                return
        raise Fatal(f"s3a://{self.bucket}: {_MENDS['NotImplemented']}: use a newer version of it")

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly below a prefix."""
        return [key.rpartition("/")[2] for key in self._keys(folder, is_deep=False)]

    def walk(self, folder: str) -> Iterator[str]:
        """Paths of all objects below a prefix."""
        for key in self._keys(folder, is_deep=True):
            yield key.removeprefix(self._root)

    def _keys(self, folder: str, *, is_deep: bool) -> list[str]:
        delimiter = {} if is_deep else {"Delimiter": "/"}
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self.key(folder)}/", **delimiter
        )
        return self.ask(folder, lambda: [each["Key"] for page in pages for each in page.get("Contents", ())])

    def unfinished(self, folder: str) -> list[str]:
        """Names of the objects whose upload has begun and not ended; some storages tell of none."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.bucket, Prefix=f"{self.key(folder)}/"
        )
        found = self.ask(folder, lambda: [each for page in pages for each in page.get("Uploads", ())])
        for each in found:
            self._uploads.setdefault(each["Key"].removeprefix(self._root), []).append(each["UploadId"])
        return [each["Key"].rpartition("/")[2] for each in found]

    def create(self, path: str) -> IO[bytes]:
        """A new object; nobody sees it before `finish`."""
        return cast("IO[bytes]", _Upload(self, path))

    def finish(self, file: IO[bytes]) -> None:
        """Send the rest; the object is there whole then, and durable."""
        cast("_Upload", file).finish()

    def put_new(self, path: str, content: bytes) -> bool:
        """Make an object, if there is none of the name; whether it was made.

        The answer may be lost after the object was made, and the request sent again: then it is refused, and the token
        in the object tells that it is this one.
        """
        note = {_TOKEN: uuid.uuid4().hex}
        for _ in range(_TRIES_OF_A_PUT):
            try:
                self.ask(path, lambda: self._put_if_new(path, content, note))
            except FileExistsError:
                return self.token_of(path) == note[_TOKEN]
            except InterruptedError:
                continue  # somebody else's put or removal of it was under way
            return True
        raise OSError(errno.EIO, "others write the same object again and again", path)

    def _put_if_new(self, path: str, content: bytes, note: dict[str, str]) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.key(path), Body=content, IfNoneMatch="*", Metadata=note)

    def token_of(self, path: str) -> str | None:
        """Which put or upload made an object; empty where others made it, None where it is not there."""
        found = self._head(path)
        return None if found is None else str(found["Metadata"].get(_TOKEN, ""))

    def _head(self, path: str) -> Any:
        with suppress(FileNotFoundError):
            return self.ask(path, lambda: self.client.head_object(Bucket=self.bucket, Key=self.key(path)))
        return None

    def move(self, source: str, target: str) -> None:
        """Copy within the storage, then remove what was copied; each may be done again by whoever comes next."""
        found = self._head(source)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        made_by = str(found["Metadata"].get(_TOKEN, ""))
        if self.token_of(target) not in {None, made_by}:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        origin = {"Bucket": self.bucket, "Key": self.key(source)}

        def copy() -> None:
            if found["ContentLength"] <= _COPIED_BYTES_MAX:
                self.client.copy_object(CopySource=origin, Bucket=self.bucket, Key=self.key(target))
                return
            # By parts, and then the note has to be given anew.
            by_parts = TransferConfig(use_threads=False, multipart_chunksize=1 << 30)
            note = {"Metadata": {_TOKEN: made_by}}
            self.client.copy(origin, self.bucket, self.key(target), ExtraArgs=note, Config=by_parts)

        self.ask(source, copy)
        self.remove(source)

    def read(self, path: str) -> bytes:
        """A whole small object."""

        def content() -> bytes:
            found = self.client.get_object(Bucket=self.bucket, Key=self.key(path))
            return cast("bytes", found["Body"].read())

        return self.ask(path, content)

    def remove(self, path: str) -> None:
        """Remove an object, and end its uploads that `unfinished` has found."""
        for upload in self._uploads.pop(path, ()):
            self.abort(path, upload)
        self.ask(path, lambda: self.client.delete_object(Bucket=self.bucket, Key=self.key(path)))

    def abort(self, path: str, upload: str) -> None:
        """End an upload; its parts are gone."""
        with suppress(FileNotFoundError):
            self.ask(
                path,
                lambda: self.client.abort_multipart_upload(Bucket=self.bucket, Key=self.key(path), UploadId=upload),
            )

    def key(self, path: str) -> str:
        """A path as the bucket has it."""
        return f"{self._root}{path}"

    def ask(self, path: str, work: Callable[[], T]) -> T:
        """Do it; the client's errors become Python's, and Fatal where a person must act."""
        where = f"s3a://{self.bucket}/{self.key(path)}"
        try:
            return work()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from error
            if code in _TAKEN:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where) from error
            if code in {"ConditionalRequestConflict", "409"}:
                raise InterruptedError(errno.EINTR, "a conflicting request is under way", where) from error
            if code in _MENDS:
                raise Fatal(f"{where}: {_MENDS[code]}, then restart the task") from error
            raise OSError(errno.EIO, f"{code}: {error.response.get('Error', {}).get('Message', '')}", where) from error
        except NoCredentialsError as error:
            raise Fatal(f"{where}: the worker has no identity for it: give aws.access.key.id and its secret") from error
        except HTTPClientError as error:
            refused = error.kwargs.get("error")
            if isinstance(refused, AddressRefusedError):
                raise Fatal(str(refused)) from error
            raise OSError(errno.EIO, str(error), where) from error
        except BotoCoreError as error:
            raise OSError(errno.EIO, str(error), where) from error


class _Upload(io.RawIOBase):
    """An object that is being written: by parts as soon as there is more than one, at once otherwise."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.name = path
        self._store = store
        self._spool: Any = tempfile.SpooledTemporaryFile(max_size=_SPOOLED_BYTES)  # noqa: SIM115 - closed by `close`
        self._begun: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._place = {"Bucket": store.bucket, "Key": store.key(path)}
        self._note = {_TOKEN: uuid.uuid4().hex}

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """All of it; sends each part that is full."""
        rest = memoryview(data).cast("B")
        count = len(rest)
        while rest:
            room = self._store.part_bytes - self._spool.tell()
            self._spool.write(rest[:room])
            rest = rest[room:]
            if self._spool.tell() >= self._store.part_bytes:
                self._send_part()
        return count

    def _send_part(self) -> None:
        if self._begun is None:
            self._begun = self._request("create_multipart_upload", Metadata=self._note)["UploadId"]
        number = len(self._parts) + 1
        self._spool.seek(0)
        sent = self._request("upload_part", UploadId=self._begun, PartNumber=number, Body=self._spool)
        self._parts.append({"ETag": sent["ETag"], "PartNumber": number})
        self._spool.seek(0)
        self._spool.truncate()

    def finish(self) -> None:
        """Send what is left."""
        if self._begun is None:
            self._spool.seek(0)
            self._request("put_object", Body=self._spool, Metadata=self._note)
        else:
            if self._spool.tell():
                self._send_part()
            self._complete()
        self._begun = None
        self.close()

    def _complete(self) -> None:
        try:
            self._request("complete_multipart_upload", UploadId=self._begun, MultipartUpload={"Parts": self._parts})
        except FileNotFoundError:
            # The first answer may have been lost: what was completed is no upload any more.
            if self._store.token_of(self.name) != self._note[_TOKEN]:
                raise

    def _request(self, name: str, **arguments: Any) -> Any:
        call = getattr(self._store.client, name)
        return self._store.ask(self.name, lambda: call(**self._place, **arguments))

    def close(self) -> None:
        """Give up what is not finished."""
        if self.closed:
            return
        super().close()
        self._spool.close()
        if self._begun is not None:
            self._store.abort(self.name, self._begun)

    def __del__(self) -> None:
        """Ask nobody: ``IOBase`` would call `close` here, on the event loop too. The next claim ends the upload."""
        self._spool.close()


def _client(config: FilesConfig, allowed: AllowedAddresses) -> Any:
    secret = config.aws_secret_access_key
    if secret is None and not allowed.permits(INSTANCE_ADDRESS):
        raise Fatal(
            "connectors may not use the worker's own identity: give aws.access.key.id and aws.secret.access.key, or "
            f"list {INSTANCE_ADDRESS} in {ADDRESSES_KEY} of the worker"
        )
    session = boto3.session.Session(
        aws_access_key_id=config.aws_access_key_id,
        aws_secret_access_key=None if secret is None else secret.get_secret_value(),
    )
    style: Any = {"addressing_style": "path" if config.s3_path_style_access_enabled else "virtual"}
    settings: Any = {}
    if config.endpoint is not None:
        # Storages other than Amazon's often refuse the checksums that its client adds of late.
        settings = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    client = session.client(
        "s3",
        region_name=config.s3_region,
        endpoint_url=config.endpoint,
        config=Config(
            connect_timeout=_CONNECT_SECONDS_MAX,
            read_timeout=_READ_SECONDS_MAX,
            retries={"mode": "standard", "total_max_attempts": config.s3_part_retries + 1},
            s3=style,
            proxies={},
            **settings,
        ),
    )
    bind_boto(client, allowed)
    return client
