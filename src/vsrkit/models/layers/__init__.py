"""Layers that several papers share."""
