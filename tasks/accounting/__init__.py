"""zCDP arithmetic, calibration and reporting."""
