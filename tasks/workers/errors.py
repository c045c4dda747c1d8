"""Errors of a cluster's workers."""

from models_db.errors import EnvironmentProblem


def cluster_unreachable(kind: str, reason: str) -> EnvironmentProblem:
    """Return the error of a cluster address at which nothing answers, or nothing with the right keys."""
    return EnvironmentProblem(
        f"The {kind} cluster cannot be used: {reason}.",
        "Check the address, whether the cluster runs, and the TLS settings of this machine (docs/distributed.md).",
        {"runner": kind, "reason": reason},
        code="ClusterUnreachable",
    )


def no_workers(kind: str) -> EnvironmentProblem:
    """Return the error of a cluster without workers."""
    return EnvironmentProblem(
        f"The {kind} cluster has no worker.",
        "Start some, and run the request again.",
        {"runner": kind},
        code="NoWorkers",
    )


def no_gpus(kind: str, workers: int, gpus: int = 1) -> EnvironmentProblem:
    """Return the error of a cluster with fewer free GPUs than workers need, each of them `gpus` on one machine."""
    each = "one for each worker" if gpus == 1 else f"{gpus} on one machine for each worker"
    return EnvironmentProblem(
        f"The {kind} cluster has fewer than {workers * gpus} free GPUs, {each}.",
        "Ask for fewer --workers, or start nodes with more GPUs, and run the request again.",
        {"runner": kind, "workers": workers, "gpus": gpus},
        code="NoGpus",
    )
