"""Models as ONNX and OpenVINO files for other programs."""
