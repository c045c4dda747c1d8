"""The work: thin Prefect shells here, the rooms below never import Prefect."""

import os

# Threads that wait for each other go to sleep instead of spinning. Read when torch is first imported, by whichever
# room that is, so it stands here. On a busy two-core machine spinning made single decoding steps of 0.2 s last up to
# 7 s; on an idle one the difference is within the noise.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Nothing here phones home. Prefect reads these when it is imported, huggingface_hub the first. flows/__init__.py
# imports this package before anything else, so Python scripts are as quiet as commands. What a user has set stands.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
