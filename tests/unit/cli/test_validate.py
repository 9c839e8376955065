"""``headrace validate``: files looked at without a worker."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from service.cli.main import main

GOOD = "name=c\nconnector.class=FileStreamSource\nfile=in.txt\ntopic=t\n"


def test_a_valid_file_is_exit_code_0(tmp_path: Path) -> None:
    """An unknown key is told and refuses nothing, as in Connect."""
    file = tmp_path / "c.properties"
    file.write_text(GOOD + "topicc=x\n")
    result = CliRunner().invoke(main, ["validate", str(file)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert "warning" in result.output
    assert "did you mean 'topic'?" in result.output


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    """Two mistakes in one file beside a good file: both are told, the good one is valid, exit code 2."""
    good, bad = tmp_path / "good.properties", tmp_path / "bad.json"
    good.write_text(GOOD)
    bad.write_text(json.dumps({"name": "b", "config": {"connector.class": "FileStreamSource", "tasks.max": "0"}}))
    result = CliRunner().invoke(main, ["validate", str(good), str(bad), "--json"])
    verdicts = json.loads(result.output)
    keys = {finding["key"] for finding in verdicts[1]["findings"] if finding["severity"] == "error"}
    assert result.exit_code == 2
    assert [verdict["valid"] for verdict in verdicts] == [True, False]
    assert keys == {"tasks.max", "topic"}


def test_a_worker_file_lends_its_converters_and_providers(tmp_path: Path) -> None:
    """A converter that no worker has is found where the connector inherits it."""
    worker, file = tmp_path / "worker.properties", tmp_path / "c.properties"
    worker.write_text("value.converter=org.example.NoConverter\n")
    file.write_text(GOOD)
    alone = CliRunner().invoke(main, ["validate", str(file)])
    with_worker = CliRunner().invoke(main, ["validate", str(file), "--worker", str(worker)])
    assert (alone.exit_code, with_worker.exit_code) == (0, 2)


def test_others_are_asked_of_what_is_right_by_itself(tmp_path: Path) -> None:
    """Who is not there to be asked says so; what they find counts like the rest."""
    good, missing, wrong = (tmp_path / f"{name}.properties" for name in ("good", "missing", "wrong"))
    (tmp_path / "in.txt").write_text("x\n")
    good.write_text(f"name=c\nconnector.class=FileStreamSource\ntopic=t\nfile={tmp_path / 'in.txt'}\n")
    missing.write_text(f"name=c\nconnector.class=FileStreamSource\ntopic=t\nfile={tmp_path}\n")
    wrong.write_text("name=c\nconnector.class=FileStreamSource\n")
    worker = tmp_path / "worker.properties"
    worker.write_text("bootstrap.servers=embedded\n")
    files = [str(path) for path in (good, missing, wrong)]
    result = CliRunner().invoke(main, ["validate", "--deep", "--json", "--worker", str(worker), *files])
    found = json.loads(result.stdout)
    assert result.exit_code == 2
    assert [each["valid"] for each in found] == [True, False, False]
    assert {asked: told.partition(":")[0] for asked, told in found[0]["asked"].items()} == {
        "Spark": "not asked",
        "registry": "not asked",
        "source": "answers",
        "Kafka": "is embedded in the worker",
    }
    assert [(finding["key"], finding["severity"]) for finding in found[1]["findings"]] == [("file", "error")]
    assert "asked" not in found[2], "what is wrong by itself is put right first"
    shown = CliRunner().invoke(main, ["validate", "--deep", "--worker", str(worker), str(good)])
    assert f"{good}: source: answers" in shown.output.replace("\n", "")
    assert shown.exit_code == 0
