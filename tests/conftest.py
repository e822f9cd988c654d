"""Profiles for all property tests.

`trimtab`: few examples, the same at every run, however slow the machine. `thorough` (`--hypothesis-profile=thorough`):
many, and others at each run, to look for what the few have missed.
"""

from hypothesis import HealthCheck, settings

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=QUIET
)
settings.register_profile("thorough", deadline=None, database=None, max_examples=1500, suppress_health_check=QUIET)
settings.load_profile("trimtab")
