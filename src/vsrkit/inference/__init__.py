"""Frames to frames: shots, windows and segments, tiles, the engine, memory."""
