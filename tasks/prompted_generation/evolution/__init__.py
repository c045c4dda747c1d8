"""Private evolution (AugPE): candidates that units vote for."""
