"""Video in and video out: the only place that knows codecs, uint8 and YUV."""
