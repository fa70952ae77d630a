"""REST of workers, shared resources and bulk runs."""
