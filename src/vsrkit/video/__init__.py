"""Reading and writing video and image files; only here are codecs, uint8 and YUV used."""
