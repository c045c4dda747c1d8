"""The fictional clinic of `almoner demo`."""
