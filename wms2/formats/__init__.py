"""How dates are written (Django's FORMAT_MODULE_PATH)."""
