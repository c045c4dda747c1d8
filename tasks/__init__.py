"""Steps of a flow, one module each, wrapped as Prefect tasks; the packages below never import Prefect."""

import os

# Threads that wait for each other sleep instead of spinning. torch reads this at its first import, by whichever
# package that is, so it is set here. On a busy two-core machine spinning made single decoding steps of 0.2 s last up to
# 7 s; on an idle one the difference is within the noise.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# No telemetry. Prefect reads both at import, huggingface_hub the first. flows/__init__.py imports this package before
# anything else, so Python scripts are as quiet as commands. A user's own setting is kept.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
