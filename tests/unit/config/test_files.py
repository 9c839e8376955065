"""Reading worker and connector files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.config.files import ConfigFileError, read_connector, read_properties


def written(folder: Path, text: str, *, name: str = "c.properties") -> Path:
    """A file of this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a  =  1 2 ", {"a": "1 2 "}),
        ("# no\n! no\n\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=x\\ty\\\\z", {"a": "x\ty\\z"}),
        ("a=\\u00e9t\\u00e9 ü", {"a": "été ü"}),
        ("a\\:b\\=c=1", {"a:b=c": "1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("url=http://h:1/p?q=1#frag", {"url": "http://h:1/p?q=1#frag"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ],
)
def test_properties_follow_javas_rules(tmp_path: Path, text: str, properties: dict[str, str]) -> None:
    """Escapes, continuation lines, all three separators, the last of equal keys (java.util.Properties.load)."""
    assert read_properties(written(tmp_path, text)) == properties


@pytest.mark.parametrize(
    "document",
    [
        {"name": "c", "tasks.max": "2", "flag": "true", "rate": "0.5"},
        {"name": "c", "tasks.max": 2, "flag": True, "rate": 0.5},
        {"name": "c", "config": {"tasks.max": 2, "flag": True, "rate": 0.5}},
        {"name": "c", "config": {"name": "c", "tasks.max": 2, "flag": True, "rate": 0.5, "nothing": None}},
    ],
)
def test_json_is_a_flat_map_or_a_create_request(tmp_path: Path, document: object) -> None:
    """Numbers and booleans become text; null is not there."""
    path = written(tmp_path, json.dumps(document), name="c.json")
    assert read_properties(path) == {"name": "c", "tasks.max": "2", "flag": "true", "rate": "0.5"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "{", "not JSON"),
        ("c.json", "[1]", "expected a JSON object"),
        ("c.json", '{"a": {"b": 1}}', "the value of 'a' must be a text, number or boolean"),
        ("c.json", '{"a": ["b"]}', "the value of 'a' must be a text, number or boolean"),
        ("c.json", '{"a": NaN}', "not JSON: NaN is no number"),
        ("c.json", '{"a": ' + "[" * 100_000, "not JSON"),
        ("c.json", '{"topic": "a", "topic": "b"}', "the key 'topic' stands there twice"),
        ("c.json", '{"name": "c", "config": {"topic": "a", "topic": null}}', "the key 'topic' stands there twice"),
        ("c.json", '{"config": {}, "initial_state": "ASLEEP"}', "Invalid initial_state 'ASLEEP'"),
        ("c.json", '{"config": {}, "initial_state": {}}', "Invalid initial_state '{}'"),
        ("c.properties", "a=\\u12", "\\u12"),
    ],
)
def test_what_is_no_configuration_is_refused_by_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    """The message names the file and what is wrong."""
    path = written(tmp_path, text, name=name)
    with pytest.raises(ConfigFileError) as refusal:
        read_connector(path)
    assert str(path) in str(refusal.value)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "number", ["12345678901234567890.123", "1E400", "1.10", "-0", "9" * 5_000], ids=lambda number: number[:20]
)
def test_a_number_is_the_text_that_was_written(tmp_path: Path, number: str) -> None:
    """Not what a float would make of it."""
    assert read_properties(written(tmp_path, f'{{"a": {number}}}', name="c.json")) == {"a": number}


@pytest.mark.parametrize(
    ("name", "text"), [("c.properties", "a=1\nb=2"), ("c.properties", '{"a": 1, "b": 2}'), ("c.json", '{"a":1,"b":2}')]
)
def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path, name: str, text: str) -> None:
    """The first line of a worker's file is often its `bootstrap.servers`."""
    assert read_properties(written(tmp_path, f"\ufeff{text}", name=name)) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("text", ["12345", "[1]", "null", "a"])
def test_a_properties_file_is_no_json_whatever_it_looks_like(tmp_path: Path, text: str) -> None:
    """As java.util.Properties has it: a key without a value."""
    found = read_connector(written(tmp_path, text))
    assert (found.properties, found.initial_state) == ({text: ""}, None)


@pytest.mark.parametrize(("written_state", "state"), [("paused", "PAUSED"), ("STOPPED", "STOPPED"), (None, None)])
def test_a_create_request_says_how_to_begin(tmp_path: Path, written_state: str | None, state: str | None) -> None:
    """And it is no key of the connector."""
    request = {"name": "c", "config": {"a": 1}, "initial_state": written_state}
    found = read_connector(written(tmp_path, json.dumps(request), name="c.json"))
    assert (found.properties, found.initial_state) == ({"name": "c", "a": "1"}, state)


def test_a_contract_is_found_in_the_working_directory_or_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a worker first; what is in neither place, absolute or no name of a file stays as it is."""
    here, folder = tmp_path / "here", tmp_path / "orders"
    here.mkdir()
    folder.mkdir()
    monkeypatch.chdir(here)
    for contract in ("file:a.avsc", "file:/b.avsc", "registry:a.avsc", "a.avsc", f"file:{'x' * 5000}", "file:a\0b"):
        path = written(folder, json.dumps({"contract.schema": contract}), name="c.json")
        assert read_properties(path) == {"contract.schema": contract}
    written(folder, "{}", name="a.avsc")
    path = written(folder, "contract.schema=file:a.avsc")
    for spelled in (path, Path("../orders/c.properties")):
        found = read_properties(spelled)["contract.schema"].removeprefix("file:")
        assert Path(found).is_absolute()
        assert Path(found).samefile(folder / "a.avsc")
    written(here, "{}", name="a.avsc")
    assert read_properties(path) == {"contract.schema": "file:a.avsc"}


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    """Likewise one that is no UTF-8."""
    with pytest.raises(ConfigFileError, match="nowhere"):
        read_properties(tmp_path / "nowhere.properties")
    path = tmp_path / "latin.properties"
    path.write_bytes(b"a=\xe9")
    with pytest.raises(ConfigFileError, match="cannot be read"):
        read_properties(path)
