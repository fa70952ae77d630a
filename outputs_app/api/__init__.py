"""REST of outputs_app: blocks and effects."""
