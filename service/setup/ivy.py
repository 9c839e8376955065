"""Fetching JVM parts with the Ivy that comes inside pyspark, so that neither Maven nor a JDK is needed.

Locked files are asked for one by one, without dependency descriptors: two requests each at most, and nothing
is resolved that is not in the lock. No repository address is given; Ivy's own default is used.
Ivy's command line: https://ant.apache.org/ivy/history/2.5.3/standalone.html
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from service.setup.archives import SHORT_LIVED
from service.setup.failure import SetupFailure
from service.setup.jars import LockedFile

FETCH_SECONDS_MAX = 1800
FETCH_ATTEMPTS_MAX = 3

_MAVEN = "http://ant.apache.org/ivy/maven"
_LAYOUT = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


class Ivy:
    """One Ivy program with a working folder of its own, which keeps what an interrupted call had fetched."""

    def __init__(self, *, java: Path, program: Path, folder: Path) -> None:
        """Take the Java to run, Ivy's jar and the working folder."""
        self._java = java
        self._program = program
        self._folder = folder

    @property
    def retrieved(self) -> Path:
        """Where fetched files lie, by the paths of the lock."""
        return self._folder / "retrieved"

    def fetch(self, files: Iterable[LockedFile]) -> None:
        """Fetch exactly these files into `retrieved`. Their digests are the caller's to check."""
        module = _module()
        dependencies = ET.SubElement(module, "dependencies")
        # Of two dependencies on one module Ivy takes the first alone.
        modules: dict[tuple[str, str, str], ET.Element] = {}
        for file in files:
            place = (file.organisation, file.module, file.revision)
            if place not in modules:
                names = {"org": file.organisation, "name": file.module, "rev": file.revision, "conf": "fetched->*"}
                modules[place] = ET.SubElement(dependencies, "dependency", names, transitive="false")
            dependency = modules[place]
            artifact = {"name": file.module, "type": file.type, "ext": file.type}
            if file.classifier:
                artifact[f"{{{_MAVEN}}}classifier"] = file.classifier
            ET.SubElement(dependency, "artifact", artifact)
        self._run(module, has_descriptors=False)

    def resolve(self, coordinates: Iterable[str]) -> None:
        """Fetch modules (`organisation:module:revision`) with all that they need at run time into `retrieved`."""
        module = _module()
        dependencies = ET.SubElement(module, "dependencies")
        for coordinate in coordinates:
            organisation, name, revision = coordinate.split(":")
            # `default` is Maven's run-time scope plus the module's own artifact; `runtime` lacks the latter.
            attributes = {"org": organisation, "name": name, "rev": revision, "conf": "fetched->default"}
            ET.SubElement(dependencies, "dependency", attributes)
        self._run(module, has_descriptors=True)

    def _run(self, module: ET.Element, *, has_descriptors: bool) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings, description, log = (self._folder / name for name in ("settings.xml", "ivy.xml", "ivy.log"))
        settings.write_bytes(ET.tostring(_settings(has_descriptors=has_descriptors)))
        description.write_bytes(ET.tostring(module))
        command: list[str | Path] = [
            self._java,
            *SHORT_LIVED,
            "-jar",
            self._program,
            "-settings",
            settings,
            "-ivy",
            description,
            "-confs",
            "fetched",
        ]
        command += ["-cache", self._folder / "cache", "-retrieve", f"{self.retrieved}/{_LAYOUT}"]
        for attempt in range(1, FETCH_ATTEMPTS_MAX + 1):
            with log.open("w", encoding="utf-8") as output:
                ended = subprocess.run(
                    command, check=False, stdout=output, stderr=subprocess.STDOUT, timeout=FETCH_SECONDS_MAX
                )
            if ended.returncode == 0:
                return
            if attempt == FETCH_ATTEMPTS_MAX:
                message = f"could not fetch the JVM parts: {_reason(log)} (is the network reachable? all of it: {log})"
                raise SetupFailure(message)


def _module() -> ET.Element:
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="headrace", module="jars")
    configurations = ET.SubElement(module, "configurations")
    ET.SubElement(configurations, "conf", name="fetched")
    return module


def _settings(*, has_descriptors: bool) -> ET.Element:
    root = ET.Element("ivysettings")
    # Of locked files every one is wanted, even two revisions of one module; while resolving, the newest wins.
    manager = "latest-revision" if has_descriptors else "all"
    ET.SubElement(root, "settings", defaultResolver="central", defaultConflictManager=manager)
    resolvers = ET.SubElement(root, "resolvers")
    poms = "true" if has_descriptors else "false"
    ET.SubElement(resolvers, "ibiblio", name="central", m2compatible="true", usepoms=poms)
    return root


def _reason(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    telling = [line.strip() for line in lines if "not found" in line or "FAILED" in line or "Exception" in line]
    return telling[0] if telling else "Ivy ended without a reason"
