"""What must be on the machine beforehand: Python with venv, and Java 17 or newer. Nothing else."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from service.setup.failure import SetupFailure

JAVA_RELEASE_MIN = 17
JAVA_ANSWER_SECONDS_MAX = 30


def find_java() -> Path | None:
    """The `java` that would run: JAVA_HOME's if it is set, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    return Path(found).resolve() if found else None


def java_release(version_text: str) -> int | None:
    """The feature release in the output of `java -version` (8 for "1.8.0"), or None where it has none."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def require_java() -> Path:
    """Return the path of a Java that is new enough, or fail with what to install."""
    advice = f"install Java {JAVA_RELEASE_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    java = find_java()
    if java is None:
        where = "JAVA_HOME has no bin/java" if os.environ.get("JAVA_HOME") else "there is no java on the PATH"
        message = f"{where}: {advice}"
        raise SetupFailure(message)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=JAVA_ANSWER_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{java} does not run ({error}): {advice}"
        raise SetupFailure(message) from error
    release = java_release(answer.stderr + answer.stdout)
    if release is None or release < JAVA_RELEASE_MIN:
        seen = f"is Java {release}" if release else "does not tell its version"
        message = f"{java} {seen}: {advice}"
        raise SetupFailure(message)
    return java


def require_venv() -> None:
    """Fail with what to install where Python came without the parts that make a virtual environment."""
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        message = (
            "this Python cannot make a virtual environment: install its venv package "
            "(Debian, Ubuntu: apt-get install python3-venv)"
        )
        raise SetupFailure(message)
