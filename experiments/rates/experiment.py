"""What rows.yaml asks for, as systems are compared: see experiments/system_tables.py."""

from experiments.system_tables import SystemsExperiment as make

__all__ = ["make"]
