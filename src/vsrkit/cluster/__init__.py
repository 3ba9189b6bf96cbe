"""Many machines: files that workers need, what runs on a worker, and Dask as an executor."""
