"""hypothesis for the tests: the same inputs in every run, and no limit on the time of one."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

__all__ = ["given", "some"]

settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("same")
