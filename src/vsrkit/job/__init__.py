"""A whole video from end to end: scan, plan, upscale in parts that survive a crash, assemble."""
