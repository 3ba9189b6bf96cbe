"""What this machine can do: device, precision, threads, memory, cache folder."""
