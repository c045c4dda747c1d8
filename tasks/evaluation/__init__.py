"""Metrics: values in, frozen result out, each marked public, charged or internal."""
