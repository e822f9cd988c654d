"""The documentation site: the tasks of `build.py` and `generate.py`, one module for each."""
