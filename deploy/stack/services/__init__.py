"""The services of a stack, one module each."""
