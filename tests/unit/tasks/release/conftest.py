"""Releases that are built and verified share dp-accounting's figures."""

from tests.second_accountant import kept_reports, second_opinions_once

__all__ = ["kept_reports", "second_opinions_once"]
