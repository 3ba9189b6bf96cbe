"""The HTTP interface: requests in, JSON and files out. docs/studio.md describes it."""
