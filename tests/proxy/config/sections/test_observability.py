"""What people see is off where it would keep text."""

import pytest
from pydantic import ValidationError

from trimtab.proxy.config.sections.observability import DashboardConfig, LogConfig, RecordConfig, TracingConfig


def test_by_default_no_text_is_kept_or_sent():
    assert not DashboardConfig().keep_text
    assert TracingConfig().otlp_endpoint is None
    assert (LogConfig().format, LogConfig().level) == ("auto", "info")


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"max_bytes": 10}, {"dri": "x"}])
def test_wrong_limits_of_recordings_are_refused(wrong):
    with pytest.raises(ValidationError):
        RecordConfig.model_validate({"dir": "x", **wrong})
