"""Metrics, evaluation protocols, tables and visual comparisons."""
