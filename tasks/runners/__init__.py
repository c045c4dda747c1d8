"""Where work is done: in processes or threads of this machine, or on the workers of a Dask or Ray cluster."""
