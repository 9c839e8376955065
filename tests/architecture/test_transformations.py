"""A transformation is one file, and has all of its forms, documentation and a comparison with Connect's own class.

Those of fields say two things in their file, and `fields` makes all forms of it.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from spark_batch.transforms import catalog
from spark_batch.transforms.fields import OfFields
from spark_batch.transforms.form import Reshaping

ROOT = Path(__file__).parents[2]
OF_RECORDS = (*catalog.WHOLE, catalog.HeaderFrom)
FORMS = (*catalog.RESHAPINGS, *OF_RECORDS, *catalog.PREDICATES, catalog.Sql)
DIFFERENTIAL = (
    ("test_transformations.py", "test_sink_transformations.py"),
    ("test_transformations_in_java.py",),
    ("test_records_in_java.py",),
    ("test_change_events_in_java.py",),
)
OWN = {name for name in vars(Reshaping) if not name.startswith("_")}
"""What the contract asks of a transformation of keys or values."""
OWN_OF_FIELDS = {"NAME", "ABOUT", "KEYS", "PURPOSE", "configured", "taken", "loose"}


@pytest.mark.parametrize("form", catalog.RESHAPINGS)
def test_a_transformation_has_every_form_in_its_own_file(form: type[catalog.ReshapingForm]) -> None:
    """Keys, types, Spark's columns, JSON values, a sink's texts and columns: nothing is inherited or left to others."""
    path = Path(inspect.getfile(form))
    assert path.stem == re.sub(r"(?<!^)(?=[A-Z])", "_", form.NAME).lower()
    body = next(node for node in ast.parse(path.read_text()).body if getattr(node, "name", "") == form.__name__)
    assert isinstance(body, ast.ClassDef)
    defined = {node.name for node in body.body if isinstance(node, ast.FunctionDef)}
    defined |= {ast.unparse(node.target) for node in body.body if isinstance(node, ast.AnnAssign)}
    assert defined >= (OWN_OF_FIELDS if issubclass(form, OfFields) else OWN | {"side"})


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_named_after_its_class_and_documented(form: type) -> None:
    """Every key says what it is for, and the guide tells of it."""
    assert form.__name__ == form.NAME  # type: ignore[attr-defined]
    assert all(key.about.endswith(".") for key in form.KEYS)  # type: ignore[attr-defined]
    assert f"`{form.__name__}`" in (ROOT / "docs/guides/transformations.md").read_text()


@pytest.mark.parametrize("form", OF_RECORDS)
def test_a_transformation_of_whole_records_has_a_file(form: type) -> None:
    """Named after it; how records of a sink go through it is said there."""
    assert Path(inspect.getfile(form)).stem == re.sub(r"(?<!^)(?=[A-Z])", "_", form.__name__).lower()
    assert "of_records" in vars(form)


@pytest.mark.parametrize("form", [*catalog.RESHAPINGS, *OF_RECORDS])
def test_a_transformation_is_compared_with_connect(form: type) -> None:
    """As a source has it and as a sink has it, against the Java class, by two workers or by the class alone."""
    texts = [[(ROOT / "tests/differential" / name).read_text() for name in names] for names in DIFFERENTIAL]
    assert any(all(form.__name__ in text for text in together) for together in texts)


def test_no_other_file_knows_single_transformations_of_records() -> None:
    """Whoever carries them out does so by the contract, one that is made of others knows them.

    Plans look for inserted timestamps, which pages must bring, and for what they cannot write.
    """
    allowed = {"spark_batch/plan_misfits.py", "spark_batch/plan_transforms.py"} | {
        f"spark_batch/transforms/{name}.py"
        for name in ("by_logical_table_router", "catalog", "extract_field", "hoist_field", "insert_field")
    }
    named = re.compile(r"\b(?:ExtractField|HoistField|InsertField)\b(?!`)")
    users = {
        str(path.relative_to(ROOT))
        for room in ("spark_batch", "service", "fetchers")
        for path in (ROOT / room).rglob("*.py")
        if named.search(path.read_text())
    }
    assert users <= allowed
