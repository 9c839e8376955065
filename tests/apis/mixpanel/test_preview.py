"""A preview of ``MixpanelSource``: a few events of the export, without a window being closed or remembered."""

from __future__ import annotations

from service.config.definition import ConnectorDefinition, read_definition
from service.config.worker import with_defaults
from service.preview.judging import PreviewParts
from service.preview.preview import as_json, preview
from service.preview.sampling import SampleLimits
from service.simulators.mixpanel_settings import MixpanelSettings
from tests.scenarios.mixpanel_memory import DAY
from tests.scenarios.mixpanel_worker import properties
from tests.scenarios.scripted_export import Scripted, scripted_export

PROJECT = MixpanelSettings(first_day=DAY, days=1)


async def _unasked(*_: object, **__: object) -> object:
    raise AssertionError("no registry and no Spark is needed")


async def _no_contract(_: ConnectorDefinition) -> None:
    return None


async def test_the_first_events_of_an_export_are_shown_and_a_copy_is_a_duplicate() -> None:
    """Of a day of many events, read no further than the sample needs; the secret shows up nowhere."""
    lines = [
        b'{"event":"e","properties":{"time":%d,"distinct_id":"u","$insert_id":"%d"}}\n' % (number, number)
        for number in range(50_000)
    ]
    body = b"".join([lines[0], *lines])
    async with scripted_export({str(DAY): [Scripted(body)]}) as export:
        keys = {"name": "m", "connector.class": "MixpanelSource", **properties(PROJECT, export.url)}
        definition = read_definition(keys, worker=with_defaults({})).definition
        assert definition is not None
        parts = PreviewParts(_no_contract, _unasked, _unasked)  # type: ignore[arg-type] # never called
        shown = await preview(definition, SampleLimits(records_max=4), parts)
        assert export.days_asked == [str(DAY)]
    found = as_json(shown, hide=lambda text: text)
    assert [record["verdict"] for record in found["records"]] == ["valid", "duplicate", "valid", "valid"]
    assert found["records"][0]["payload"] == lines[0].decode().strip()
    assert found["source"]["end"] == "records"
    assert PROJECT.secret not in str(found)
