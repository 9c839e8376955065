"""What an answer shows of a sample: nothing of the secrets that its config holds, and of long records the beginning."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fetchers.sdk import Fatal, Page
from service.preview.judging import SHOWN_BYTES_MAX, Judged, JudgedRecord
from service.preview.preview import Preview, as_json
from service.preview.sampling import Sample, SampleEnd, SampleLimits
from tests.unit.preview.test_judging import defined

SECRET = 'p"ssw0rd-ü'
DIGITS = "8675309"


def shown(
    payload: bytes | None, value: Any = None, *, message: str | None = None, offset: Any = None, error: Any = None
) -> Any:
    """The answer about one record, by a config whose password is ``SECRET`` and whose pin is ``DIGITS``."""
    definition = defined(my_password=SECRET, my_token=DIGITS)
    record = JudgedRecord(
        payload=payload, topic="t", key=None, value=value, timestamp=None, verdict="rejected", message=message
    )
    sample = Sample((Page([payload], {}),), SampleEnd.SOURCE, offsets=(({}, offset or {}),), error=error)
    answer = as_json(Preview(definition, sample, Judged((record,), is_by_spark=False), SampleLimits()), hide=str)
    json.dumps(answer)
    return answer


@pytest.mark.parametrize("begin", range(SHOWN_BYTES_MAX - len(SECRET.encode()), SHOWN_BYTES_MAX + 1))
@pytest.mark.parametrize("is_text", [True, False])
def test_a_secret_at_the_cut_does_not_show_its_beginning(begin: int, is_text: bool) -> None:  # noqa: FBT001
    """It is hidden before the rest is cut off."""
    payload = b"x" * begin + SECRET.encode() + b"y" * 100 + (b"" if is_text else b"\xff")
    (record,) = shown(payload, payload)["records"]
    for found in (record["payload"], record["value"]):
        text = found if is_text else base64.b64decode(found["base64"]).decode()
        assert text.replace("[hidden]", "") == "x" * begin
    assert record["is_cut"]


def test_a_secret_is_hidden_as_json_writes_it() -> None:
    """In the payload as it came, and in a value too long to be shown as one."""
    written = json.dumps({"got": SECRET})
    (record,) = shown(written.encode(), {"got": SECRET, "more": "x" * SHOWN_BYTES_MAX})["records"]
    assert record["payload"] == '{"got": "[hidden]"}'
    assert record["value"].startswith('{"got": "[hidden]", "more": "xxx')


def test_names_and_numbers_are_hidden_too() -> None:
    """Other numbers, truth values and nulls stay what they are."""
    value = {SECRET: 1, "pin": int(DIGITS), "list": [int(DIGITS), 5, None, True], "in": f"id {DIGITS}."}
    (record,) = shown(b"{}", value)["records"]
    assert record["value"] == {
        "[hidden]": 1,
        "pin": "[hidden]",
        "list": ["[hidden]", 5, None, True],
        "in": "id [hidden].",
    }


def test_what_is_no_text_is_hidden_in_before_it_becomes_base64() -> None:
    """The other bytes stay as they are."""
    (record,) = shown(b"\xff\x00" + SECRET.encode() + b"\x80")["records"]
    assert base64.b64decode(record["payload"]["base64"]) == b"\xff\x00[hidden]\x80"


def test_messages_offsets_and_errors_are_hidden_too() -> None:
    """All of them may repeat what the source says."""
    answer = shown(None, message=f"id: expected {SECRET}", offset={"url": f"/?t={DIGITS}"}, error=Fatal(f"no {SECRET}"))
    assert answer["records"][0]["message"] == "id: expected [hidden]"
    assert answer["source"]["offsets"] == [{"partition": {}, "offset": {"url": "/?t=[hidden]"}}]
    assert SECRET not in str(answer)
    assert DIGITS not in str(answer)
