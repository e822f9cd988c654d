"""The documentation site: what `build.py` and `generate.py` beside this package do, one module a task."""
