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
    """A cluster with fewer free GPUs than workers need, each of them `gpus` on one machine."""

    def __init__(self, kind: str, workers: int, gpus: int = 1) -> None:
        each = "one for each worker" if gpus == 1 else f"{gpus} on one machine for each worker"
        super().__init__(
            f"The {kind} cluster has fewer than {workers * gpus} free GPUs, {each}.",
            "Ask for fewer --workers, or start nodes with more GPUs, and run the request again.",
            {"runner": kind, "workers": workers, "gpus": gpus},
        )
