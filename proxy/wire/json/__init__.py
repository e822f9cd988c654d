"""JSON as bytes: where values stand, and what decoders refuse."""
