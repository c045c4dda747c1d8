"""The project home as flows see it: settings, files, stores, endpoints."""
