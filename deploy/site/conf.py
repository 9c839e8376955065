"""Settings of the documentation as a site, built by `./headrace site` with Sphinx.

https://www.sphinx-doc.org/en/master/usage/configuration.html. The pages are those of the repository, where they stand;
a link that leads nowhere, or to a heading that is not there, fails the build.
"""

from sphinx.application import Sphinx

from service.version import VERSION

project = "headrace"
version = release = VERSION
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
html_theme = "furo"
html_title = f"headrace {VERSION}"
html_copy_source = False
# Anchors as GitHub makes them, so that a link to a heading works there and here.
myst_heading_anchors = 4

_TREE = """
```{toctree}
:hidden:
:glob:
:caption: Guides

../README
guides/*
```

```{toctree}
:hidden:
:glob:
:caption: Reference

reference/*
```

```{toctree}
:hidden:
:glob:
:caption: Behind it

../ARCHITECTURE
../CONTRIBUTING
../CHANGELOG
benchmarks/*
adr/*
```
"""


def setup(app: Sphinx) -> None:
    """Called by Sphinx: gives the first page its tree, which on GitHub would be shown as text."""
    app.connect("source-read", _add_tree)


def _add_tree(_app: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        source[0] += _TREE
