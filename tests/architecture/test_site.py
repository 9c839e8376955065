"""The documentation becomes a site, and no link in it leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tracked import ROOT


@pytest.mark.timeout(600)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """A page that is not there, an anchor without its heading, a page that no other leads to: each fails the build."""
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(ROOT / "deploy" / "site")]
    built = subprocess.run(
        [*sphinx, "-d", str(tmp_path / "doctrees"), str(ROOT), str(tmp_path / "site")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "docs" / "guides" / "add-a-fetcher.html").is_file()
