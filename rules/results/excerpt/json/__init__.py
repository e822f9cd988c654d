"""What a long JSON document keeps."""
