#!/bin/sh
# The GPU kit in one command: see docs/gpu.md. `gpu.sh --check` says what is missing on this machine.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-}
if [ -z "$python" ]; then
    if [ -x .venv/bin/python ]; then python=.venv/bin/python; else python=python3; fi
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "gpu.sh: '$python' is missing or older than Python 3.11; set PYTHON to one that has torch." >&2
    exit 2
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1
exec "$python" -m benchmarks.gpu.run "$@"
