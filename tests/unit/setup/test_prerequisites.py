"""A Python without what makes a virtual environment is told before anything is made."""

from __future__ import annotations

import importlib.util

import pytest

from service.setup.failure import SetupFailure
from service.setup.prerequisites import require_venv


@pytest.mark.parametrize("lacking", ["venv", "ensurepip"])
def test_a_python_without_venv_names_the_package(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian splits Python: either part may be missing."""
    require_venv()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == lacking else find_spec(name))
    with pytest.raises(SetupFailure, match="apt-get install python3-venv"):
        require_venv()
