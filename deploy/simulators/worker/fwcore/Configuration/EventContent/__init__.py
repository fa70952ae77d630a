"""Which products an output keeps."""
