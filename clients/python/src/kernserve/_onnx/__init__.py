"""What kernserve.onnx converts graphs by."""
