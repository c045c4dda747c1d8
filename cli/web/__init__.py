"""The dashboard: read-only pages over HTTP. Only this room knows Starlette and uvicorn."""
