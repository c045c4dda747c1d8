"""Prefect flows whose bodies read as a paragraph; every one also runs as a plain function."""

import tasks as tasks  # its environment (no telemetry) is set before any module here imports Prefect
