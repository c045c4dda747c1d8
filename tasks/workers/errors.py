"""Errors of a cluster's workers."""

from models_db.errors import EnvironmentProblem


class ClusterUnreachable(EnvironmentProblem):
    """Cluster address at which nothing answers, or nothing with the right keys."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(
            f"The {kind} cluster cannot be used: {reason}.",
            "Check the address, whether the cluster runs, and the TLS settings of this machine (docs/distributed.md).",
            {"runner": kind, "reason": reason},
        )


class NoWorkers(EnvironmentProblem):
    """A cluster without workers."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"The {kind} cluster has no worker.", "Start some, and run the request again.", {"runner": kind}
        )


class NoGpus(EnvironmentProblem):
    """A cluster with fewer free GPUs than workers."""

    def __init__(self, kind: str, workers: int) -> None:
        super().__init__(
            f"The {kind} cluster has fewer than {workers} free GPUs, one for each worker.",
            "Ask for fewer --workers, or start nodes with more GPUs, and run the request again.",
            {"runner": kind, "workers": workers},
        )
