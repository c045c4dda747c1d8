"""Pools of workers: processes, threads, Ray."""
