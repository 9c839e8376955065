"""Set-up: makes a fresh clone able to run, before anything is installed.

Everything here is standard library only, because it runs with the system's Python: the launcher calls
`python -m service.setup`, which checks prerequisites, completes the virtual environment from locked
requirements and fills the cache of JVM parts. Each step can be interrupted anywhere and mends itself on the
next call: what is half-made has a temporary name or is recognised by what its own records say is missing.
"""
