"""Whether registered blocks are what they should be."""
