"""What is wrong with keys taken together: exactly-once and topics' rules of sources, groups of sinks, versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from service.config.sink import GROUP_ID_OVERRIDE
from service.validation.connectors import KnownConnector
from service.validation.entries import Entries
from service.validation.versions import VersionSyntaxError, is_in_range, range_text

NO_EXACTLY_ONCE = "The connector does not support exactly-once semantics with the provided configuration."
NO_BOUNDARIES = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. "
    "Please reconfigure it to use a different transaction boundary definition."
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one worker."""

    group_id: str

    def check(self, entries: Entries, properties: Mapping[str, str], connector: KnownConnector) -> None:
        """Add what is found to the entries."""
        _check_version(entries, properties, connector)
        if connector.is_sink:
            self._check_group(entries, properties)
        else:
            _check_exactly_once(entries, properties)

    def _check_group(self, entries: Entries, properties: Mapping[str, str]) -> None:
        """A sink in the workers' own group would break the cluster."""
        group = properties.get(GROUP_ID_OVERRIDE, "").strip()
        name = properties.get("name", "").strip()
        if group and group == self.group_id:
            text = f"Consumer group {group} conflicts with Connect worker group {self.group_id}"
            entries.fail(GROUP_ID_OVERRIDE, text, is_counted_once=True)
        elif not group and f"connect-{name}" == self.group_id:
            text = f"Consumer group for sink connector named {name} conflicts with Connect worker group {self.group_id}"
            entries.fail("name", text)


def _check_exactly_once(entries: Entries, properties: Mapping[str, str]) -> None:
    is_required = properties.get("exactly.once.support", "").strip().lower() == "required"
    if is_required and properties.get("delivery.guarantee", "").strip() == "at_least_once":
        entries.fail("exactly.once.support", NO_EXACTLY_ONCE)
    if properties.get("transaction.boundary", "").strip().lower() == "connector":
        entries.fail("transaction.boundary", NO_BOUNDARIES)


def _check_version(entries: Entries, properties: Mapping[str, str], connector: KnownConnector) -> None:
    """The connector's own version, and whether it is what the config demands."""
    version = connector.plugin.version
    entry = entries.by_name["connector.plugin.version"]
    if entry.definition is not None:
        entry.definition = replace(entry.definition, default_value=version)
    entry.recommended = (version,)
    wanted = properties.get("connector.plugin.version")
    if wanted is None:
        entry.value = version
        return
    try:
        if is_in_range(version, wanted):
            return
    except VersionSyntaxError:
        entries.fail("connector.plugin.version", f"Invalid version specification: {wanted}")
        return
    text = (
        f"Plugin {connector.class_name} not found that matches the version range {range_text(wanted)}, "
        f"available versions: [{version}]"
    )
    entries.fail("connector.class", text)
    entries.fail("connector.plugin.version", text)
