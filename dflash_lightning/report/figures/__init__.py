"""Figures of the report: what can be drawn from a run's logs."""
