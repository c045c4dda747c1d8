"""Inputs, intervals and results of metrics."""
