"""Properties of this machine: device, precision, threads, memory, files, cache folder."""
