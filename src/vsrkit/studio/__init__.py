"""A local web server on which videos are tried, upscaled and watched; see docs/studio.md."""
