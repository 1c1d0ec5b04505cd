"""ONNX graphs: read, adapted, converted to FP16 and exported."""
