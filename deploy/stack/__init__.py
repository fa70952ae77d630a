"""The process stack of one machine: set-up, supervision and the commands behind the Makefile.

Standard library only: it runs on the system's Python, before any environment exists.
"""
