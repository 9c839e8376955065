"""The image is built from the Dockerfile and does the main job in it, without any network.

No container engine is needed: buildah builds on a minimal Debian made by mmdebstrap or debootstrap, and the image's
own entry point, user, environment and health check are run in its file system with a network namespace that has
nothing but a loopback device. Takes some minutes; needs Linux, root and the Debian packages buildah and
mmdebstrap (`.ci/run` installs them where it may).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(1500)]

_ROOT = Path(__file__).parents[2]
_NEEDED = ("buildah", "unshare", "chroot", "ip", "hostname")
_BOOTSTRAPS = ("mmdebstrap", "debootstrap")
"""Either makes a minimal Debian; the first in half the time."""
_BUILD_SECONDS_MAX = 1200
_RUN_SECONDS_MAX = 600
_JAVA = f"JAVA_TOOL_OPTIONS={os.environ.get('JAVA_TOOL_OPTIONS', '')}"
"""The JVMs in the container are JVMs of tests too (`tests/conftest.py`)."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1 the image's file system, $2 its user; the files in its folder test hold commands, one word a line.
# What a container runtime does besides: it resolves its container's host name, here by /etc/hosts.
_IN_A_CONTAINER = r"""
set -eu
image=$1 user=$2
hostname localhost
echo "127.0.0.1 localhost" >"$image/etc/hosts"
ip link set lo up
mount -t proc proc "$image/proc"
mount --rbind /dev "$image/dev"
for name in entry health metrics within; do mapfile -t "$name" <"$image/test/$name"; done
inside=(chroot --userspec="$user:$user" "$image" "${within[@]}")
"${inside[@]}" "${entry[@]}" &
worker=$!
until "${inside[@]}" "${health[@]}" >/dev/null 2>&1; do kill -0 $worker; sleep 2; done
echo "== healthy"
until "${inside[@]}" "${metrics[@]}"; do kill -0 $worker; sleep 2; done
echo "== delivered"
kill -TERM $worker
code=0; wait $worker || code=$?
echo "== exit $code"
"""
_METRICS = (
    "import re, sys, urllib.request as r;"
    "text = r.urlopen('http://127.0.0.1:8083/metrics', timeout=4).read().decode();"
    "found = re.findall(r'^headrace_records_delivered_total\\{.*\\} (\\S+)$', text, re.M);"
    "sys.exit(sum(map(float, found)) < 3)"
)


@dataclass(frozen=True)
class Image:
    """A built image: its configuration, and its file system, mounted."""

    config: dict[str, Any]
    files: Path


@dataclass(frozen=True)
class Builder:
    """buildah with a storage of its own, so that nothing of the machine's is touched or left behind."""

    folder: Path
    driver: str

    @classmethod
    def in_folder(cls, folder: Path) -> Builder:
        """Layers lie upon each other where the folder's file system can bear it; else each is a copy of all below."""
        builder = cls(folder / "overlay", "overlay")
        try:
            builder("info")
        except AssertionError:
            return cls(folder / "vfs", "vfs")
        return builder

    def __call__(self, *arguments: str) -> str:
        """Run buildah and return what it printed; what it said goes into the failure."""
        storage = ("--root", f"{self.folder}/storage", "--runroot", f"{self.folder}/run")
        environment = {"BUILDAH_ISOLATION": "chroot"}
        return _run("buildah", "--storage-driver", self.driver, *storage, *arguments, environment=environment)

    def clear(self) -> None:
        """Leave nothing mounted: it belongs to the storage, and would outlive its folder."""
        self("umount", "--all")
        self("rm", "--all")
        self("rmi", "--all", "--force")
        for mounted in _mounts_below(self.folder):
            _run("umount", mounted)


def _run(*command: str, environment: dict[str, str] | None = None, seconds_max: float = _BUILD_SECONDS_MAX) -> str:
    with subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            running.kill()
            said, _ = running.communicate()
    assert running.returncode == 0, f"{' '.join(command[:8])} …: {running.returncode}\n{said[-6000:]}"
    return said


def _mounts_below(folder: Path) -> list[str]:
    """Deepest first."""
    places = (line.split(" ")[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").split("\n") if line)
    return sorted((place for place in places if place.startswith(f"{folder}/")), key=len, reverse=True)


def _words(*words: str) -> str:
    return "".join(f"{word}\n" for word in words)


def _mirror() -> str:
    """The Debian mirror that this machine uses."""
    for source in sorted(Path("/etc/apt").glob("sources.list.d/*.sources")):
        found = re.search(r"^URIs:\s*(\S+)", source.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found.group(1)
    found = re.search(
        r"^deb\s+(?:\[.*?\]\s+)?(\S+)", Path("/etc/apt/sources.list").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found, "this machine names no Debian mirror"
    return found.group(1)


def _make_base(builder: Builder) -> str:
    """A minimal Debian as an image, trusting the authorities that this machine was told to trust."""
    container = builder("from", "scratch").strip()
    files = Path(builder("mount", container).strip())
    if shutil.which("mmdebstrap"):
        # As in Debian's own images dpkg does not wait for the disk.
        options = ("--mode=root", "--dpkgopt=force-unsafe-io", "--include=ca-certificates", "--variant=minbase")
        _run("mmdebstrap", *options, "bookworm", str(files), _mirror())
    else:
        _run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(files), _mirror())
    own_authorities = Path("/usr/local/share/ca-certificates")
    if own_authorities.is_dir():
        shutil.copytree(own_authorities, files / own_authorities.relative_to("/"), dirs_exist_ok=True)
        _run("chroot", str(files), "update-ca-certificates", environment={"TMPDIR": "/tmp"})
    builder("umount", container)
    builder("config", "--env", f"PATH={_SYSTEM_PATH}", container)
    builder("commit", "-q", "--rm", container, "localhost/debian:test")
    return "localhost/debian:test"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image built from the committed Dockerfile, mounted."""
    missing = [program for program in _NEEDED if shutil.which(program) is None]
    if not any(map(shutil.which, _BOOTSTRAPS)):
        missing.append(" or ".join(_BOOTSTRAPS))
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        pytest.skip(f"building an image here needs Linux, root and programs; missing: {missing or 'Linux or root'}")
    folder = tmp_path_factory.mktemp("image")
    builder = Builder.in_folder(folder)
    options = ("--format", "docker", "--network", "host", "--pull-never", "-t", "localhost/headrace:test")
    try:
        builder("bud", *options, "--build-arg", f"BASE={_make_base(builder)}", str(_ROOT))
        config = json.loads(builder("inspect", "--type", "image", "localhost/headrace:test"))["Docker"]["config"]
        container = builder("from", "--pull-never", "localhost/headrace:test").strip()
        yield Image(config, Path(builder("mount", container).strip()))
    finally:
        builder.clear()


def test_image_runs_as_nobody_in_particular(image: Image) -> None:
    """The user is not root, and cannot change the program it runs."""
    assert image.config["User"] == "10001"
    program = image.files / "opt" / "headrace"
    owners = {
        path.lstat().st_uid
        for path in (program, *program.glob(".venv/lib/*/site-packages/headrace"), program / "parts")
    }
    assert owners == {0}
    assert [each.name for each in sorted(program.glob(".venv/class-archives/*/*"))] == ["kafka.jsa", "spark.jsa"]
    assert image.config["Healthcheck"]["Test"][0] == "CMD"
    assert "/health/live" in " ".join(image.config["Healthcheck"]["Test"])


def test_image_leads_a_file_into_kafka_without_a_network(image: Image) -> None:
    """Entry point, user, environment and health check as configured: a file is delivered, SIGTERM ends it with 0."""
    work = image.files / "test"
    work.mkdir()
    string = "org.apache.kafka.connect.storage.StringConverter"
    home = image.config["WorkingDir"]
    files = {
        "worker.properties": f"bootstrap.servers=embedded\nkey.converter={string}\nvalue.converter={string}\n",
        "lines.properties": "name=lines\nconnector.class=FileStreamSource\nfile=/test/lines.txt\ntopic=lines\n",
        "lines.txt": "one\ntwo\nthree\n",
        "entry": _words(*image.config["Entrypoint"], "standalone", "/test/worker.properties", "/test/lines.properties"),
        "health": _words(*image.config["Healthcheck"]["Test"][1:]),
        "metrics": _words("/opt/headrace/.venv/bin/python", "-I", "-S", "-c", _METRICS),
        "within": _words("env", "-i", f"--chdir={home}", *image.config["Env"], f"HOME={home}", _JAVA),
    }
    for name, text in files.items():
        (work / name).write_text(text, encoding="utf-8")
    said = _run(
        *("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"),
        *("bash", "-c", _IN_A_CONTAINER),
        *("in-image", str(image.files), image.config["User"]),
        seconds_max=_RUN_SECONDS_MAX,
    )
    assert [line for line in said.splitlines() if line.startswith("==")] == ["== healthy", "== delivered", "== exit 0"]
