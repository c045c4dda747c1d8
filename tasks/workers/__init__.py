"""Pools of workers: processes, threads, Dask, Ray."""
