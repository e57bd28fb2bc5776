"""What the transformers and clusterers of `arbora.expand` share."""
